//! `/servers/{id}/os-instance-actions`: the instance actions, read from the journal.

use axum::Json;
use axum::extract::{Path, State};
use jiff::Timestamp;
use kilonova_access::Caller;
use kilonova_compute_app::{Compute, Error, microversions};
use kilonova_compute_db::servers::listing;
use kilonova_flow::{self as flow, Event, Operation, Outcome};
use kilonova_ids::{ServerId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::paging::Page;
use kilonova_wire::query::Query;
use kilonova_wire::{Microversion, Refusal, time};
use serde_json::{Value, json};

use super::view::host_id;
use crate::api::links::Base;
use crate::api::{input, links};

/// Maximum number of operations read for a server, newest first.
const MAX_OPERATIONS: i64 = 10_000;

fn view(operation: &Operation, version: Microversion) -> Value {
    let message = match operation.outcome {
        Outcome::Failed => json!("Error"),
        _ => Value::Null,
    };
    let mut shown = json!({
        "action": operation.kind,
        "instance_uuid": operation.subject,
        "request_id": operation.request_id,
        "user_id": operation.user_id,
        "project_id": operation.project_id,
        "start_time": time::naive(operation.created_at),
        "message": message,
    });
    if version >= microversions::ACTION_PAGES {
        shown["updated_at"] = time::naive(operation.updated_at).into();
    }
    shown
}

/// The parts of an event that the policy lets the caller see.
#[derive(Clone, Copy)]
struct EventVisibility {
    /// Tracebacks and hosts; before 2.51, also the events themselves.
    all: bool,
    /// The host's error message.
    details: bool,
}

fn event(
    event: &Event,
    project: &str,
    visibility: EventVisibility,
    version: Microversion,
) -> Value {
    let mut shown = json!({
        "event": event.name,
        "start_time": time::naive(event.started_at),
        "finish_time": event.finished_at.map(time::naive),
        "result": event.result,
    });
    if visibility.all {
        shown["traceback"] = Value::Null;
    }
    if version >= microversions::EVENT_HOSTS {
        shown["hostId"] = json!(host_id(project, event.host.as_ref()));
        if visibility.all {
            shown["host"] = json!(event.host.as_deref());
        }
    }
    if version >= microversions::EVENT_DETAILS && visibility.details {
        shown["details"] = json!(event.details);
    }
    shown
}

/// The actions of a server, and the project that it belongs to.
struct History {
    project_id: String,
    /// Newest first; empty if all were purged.
    operations: Vec<Operation>,
}

/// The actions of a server. From 2.21 on, the server may be deleted (`_get_instance` of upstream's
/// `instance_actions.py`). Access is checked against the server's project, because an action records
/// its requester's project, which may be an administrator's. Once the row of a deleted server is
/// purged, the oldest action supplies the project and the user.
fn history(
    tx: &mut Tx<'_>,
    caller: &Caller,
    version: Microversion,
    id: &str,
) -> Result<History, Error> {
    let server: ServerId = parse_uuid_like(id).ok_or_else(|| super::find::missing(id))?;
    let row = match version < microversions::ACTIONS_OF_DELETED {
        true => Some(super::find::find(tx, caller, id)?),
        false => listing::find(tx, server)?,
    };
    let operations = flow::history(tx, server, MAX_OPERATIONS)?;
    let owner = match (row, operations.last()) {
        (Some(row), _) => Some((row.project_id, row.user_id)),
        (None, Some(oldest)) => Some((oldest.project_id.clone(), oldest.user_id.clone())),
        (None, None) => None,
    };
    let owner = owner.filter(|(project_id, _)| caller.may_see(project_id));
    let (project_id, user_id) = owner.ok_or_else(|| super::find::missing(id))?;
    caller.may_on(&[("project_id", &project_id), ("user_id", &user_id)])?;
    Ok(History { project_id, operations })
}

/// The page and the period of a request, from 2.58 on.
struct ActionQuery {
    page: Page,
    since: Option<Timestamp>,
    before: Option<Timestamp>,
}

impl ActionQuery {
    fn read(query: &Query, version: Microversion) -> Result<Option<Self>, Refusal> {
        if version < microversions::ACTION_PAGES {
            return Ok(None);
        }
        let mut known = vec!["limit", "marker", "changes-since"];
        if version >= microversions::CHANGES_BEFORE {
            known.push("changes-before");
        }
        input::check_query_keys(query, &known)?;
        let at = |key: &str| -> Result<Option<Timestamp>, Refusal> {
            let Some(text) = query.get(key) else { return Ok(None) };
            let why = "It is not an ISO 8601 time.";
            time::parse(text).map(Some).ok_or_else(|| input::invalid_query(key, text, why))
        };
        let request = Self {
            page: Page::read(query)?,
            since: at("changes-since")?,
            before: at("changes-before")?,
        };
        if request.since.zip(request.before).is_some_and(|(since, before)| since > before) {
            return Err(Refusal::bad_request(
                "The value of changes-since must be less than or equal to changes-before.",
            ));
        }
        Ok(Some(request))
    }

    /// Returns the page, and true if another page follows.
    fn cut(&self, mut all: Vec<Operation>) -> Result<(Vec<Operation>, bool), Refusal> {
        all.retain(|operation| {
            self.since.is_none_or(|since| operation.updated_at >= since)
                && self
                    .before
                    .is_none_or(|before| operation.updated_at <= time::end_of_second(before))
        });
        let cut = self.page.cut(all, |operation| operation.request_id.clone());
        cut.ok_or_else(|| {
            let marker = self.page.marker.as_deref().unwrap_or_default().escape_debug().to_string();
            Refusal::bad_request(format!("Marker {marker} could not be found."))
        })
    }
}

pub(super) async fn list(
    State(compute): State<Compute>,
    context: Caller,
    base: Base,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let request = ActionQuery::read(&query, version)?;
    let path = format!("servers/{id}/os-instance-actions");
    let history = compute.store.read(move |tx| history(tx, &context, version, &id)).await?;
    let all = history.operations;
    let (page, more) = match request {
        Some(request) => request.cut(all)?,
        None => (all, false),
    };
    let shown: Vec<Value> = page.iter().map(|operation| view(operation, version)).collect();
    let mut answer = json!({"instanceActions": shown});
    if let Some(last) = page.last().filter(|_| more) {
        answer["links"] = links::next(&base, &path, &query, &last.request_id);
    }
    Ok(Json(answer))
}

pub(super) async fn show(
    State(compute): State<Compute>,
    context: Caller,
    version: Microversion,
    query: Query,
    Path((id, request)): Path<(String, String)>,
) -> Result<Json<Value>, Refusal> {
    input::check_no_query(&query, version)?;
    let caller = context.clone();
    let (owner, (operation, events)) = compute
        .store
        .read(move |tx| {
            let server: ServerId = parse_uuid_like(&id).ok_or_else(|| super::find::missing(&id))?;
            let owner = history(tx, &caller, version, &id)?.project_id;
            let one = flow::one(tx, server, &request)?.ok_or_else(|| {
                let request = request.escape_debug();
                Error::from(Refusal::not_found(format!("Action {request} not found")))
            })?;
            Ok::<_, Error>((owner, one))
        })
        .await?;
    let mut shown = view(&operation, version);
    let project = operation.project_id.as_str();
    let allows = |rule| context.allows(rule, &[("project_id", &owner)]);
    let visibility = EventVisibility {
        all: allows("os_compute_api:os-instance-actions:events"),
        details: allows("os_compute_api:os-instance-actions:events:details"),
    };
    if version >= microversions::EVENTS_FOR_OWNERS || visibility.all {
        let events = events.iter().map(|one| event(one, project, visibility, version));
        shown["events"] = events.collect::<Vec<_>>().into();
    }
    Ok(Json(json!({"instanceAction": shown})))
}
