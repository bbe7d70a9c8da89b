//! `/hosts/{host}`: one host with its servers and devices, and its drain.
//!
//! A drain proceeds in rounds. In each round the page submits a form with the moves that it has requested so far; the
//! controller stores nothing.

use std::collections::{BTreeMap, BTreeSet};

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use http::{HeaderMap, Method};
use kilonova_compute_app::drain::{Allowed, DrainedHost, HostState, HostStatus, Step, decide};
use kilonova_ids::{ServerId, parse_uuid_like};
use kilonova_wire::query::escaped;
use serde_json::{Value, json};

use super::answers::{Html, Refusal, words};
use super::floor::{projects, some_hosts};
use super::form::{Fields, Form};
use super::viewer::Viewer;
use crate::app::Dashboard;
use crate::app::floor::{Host, Projects, key_of};
use crate::error::Error;
use crate::texts;
use crate::views::host as page;

/// The policy rule for changes of a host.
const CHANGE_RULE: &str = "os_compute_api:os-services:update";
/// Maximum number of ownership changes on a page.
const CHANGES: usize = 30;
/// Maximum number of servers of a host that move at the same time.
const PARALLEL: usize = 4;
/// Maximum number of refusals whose reasons a form carries, because the size of a form is limited.
const REASONS: usize = 200;
/// Maximum number of characters of a reason.
const REASON: usize = 250;

pub(super) fn routes() -> Router<Dashboard> {
    Router::new()
        .route("/hosts/{host}", get(show))
        .route("/hosts/{host}/drain", get(left).post(drain))
        .route("/hosts/{host}/enable", post(enable))
        .route("/hosts/{host}/disable", post(disable))
        .route("/hosts/{host}/devices/{uuid}/{change}", post(change_device))
}

/// A host as the services describe it.
pub(crate) struct Found {
    /// The compute service's answer.
    pub host: Value,
    /// The same answer, parsed for a drain.
    pub drained: DrainedHost,
    /// Its devices; `None` if the compute service no longer has the host in memory.
    pub floor: Option<Host>,
    /// Changes of the owners of its devices, the newest first.
    pub changes: Value,
    /// Its certificate.
    pub certificate: Value,
    /// The projects of the cloud.
    pub projects: Projects,
}

impl Found {
    /// A digest of the shown state: two pages that show different states have different digests.
    pub(crate) fn digest(&self) -> String {
        let floor = self.floor.as_ref().map_or(0, Host::fingerprint);
        let shown = ["guests", "state", "status", "disabled_reason", "forced_down"];
        let text: String = shown.iter().map(|key| self.host[*key].to_string()).collect();
        key_of(&format!("{floor} {text}"))
    }
}

/// The ids of the servers that are on a host, or that have a document or a claim there.
pub(super) async fn servers(
    dashboard: &Dashboard,
    viewer: &Viewer,
    name: &str,
) -> Result<BTreeSet<ServerId>, Error> {
    let (_, host) = explained(dashboard, viewer, name).await?;
    Ok(host.guests.iter().filter_map(|guest| parse_uuid_like(&guest.id)).collect())
}

/// A host by its name.
pub(super) async fn find(
    dashboard: &Dashboard,
    viewer: &Viewer,
    name: &str,
) -> Result<Found, Error> {
    let cloud = &dashboard.0.cloud;
    let (host, drained) = explained(dashboard, viewer, name).await?;
    let floor = some_hosts(dashboard, viewer, [name]).await?.into_iter().next();
    let changes = format!(
        "/accelerator/v2/kilonova/handle_changes?hostname={}&limit={CHANGES}",
        escaped(name)
    );
    let optional = async |path: &str| match cloud.get(&viewer.caller, path).await {
        Ok(found) => Ok(found),
        Err(error) if [403, 404, 409].iter().any(|status| error.is(*status)) => Ok(Value::Null),
        Err(error) => Err(error),
    };
    let mut changes = optional(&changes).await?;
    let enrolled = optional("/compute/v2.1/kilonova/enrollments").await?;
    let certificates = enrolled["certificates"].as_array().into_iter().flatten();
    let mut own = certificates.filter(|one| one["host"] == name && one["state"] == "valid");
    Ok(Found {
        drained,
        host,
        floor,
        changes: changes["handle_changes"].take(),
        certificate: own.next_back().cloned().unwrap_or_default(),
        projects: projects(dashboard, viewer).await?,
    })
}

async fn explained(
    dashboard: &Dashboard,
    viewer: &Viewer,
    name: &str,
) -> Result<(Value, DrainedHost), Error> {
    let path = format!("/compute/v2.1/kilonova/hosts/{}", escaped(name));
    let mut answer = dashboard.0.cloud.get(&viewer.caller, &path).await?;
    let host = answer["host"].take();
    let drained = serde_json::from_value(host.clone())
        .map_err(|error| Error::Defect(format!("the description of a host: {error}")))?;
    Ok((host, drained))
}

/// A drain in progress.
#[derive(Debug, Default)]
pub(crate) struct Draining {
    /// True if running servers that cannot live-migrate may be shut off.
    pub cold: bool,
    /// The servers whose moves were requested.
    pub asked: BTreeSet<String>,
    /// Servers on the host when it began.
    pub total: usize,
    /// By server: the reason why the service refused a request. The drain does not repeat that request.
    pub refused: BTreeMap<String, String>,
    /// By server: the reason why a request failed in this round. The next round repeats that request.
    pub unanswered: BTreeMap<String, String>,
}

impl Draining {
    /// The next step of each guest, and true if the step failed: the service refused it, or the requested move ended
    /// while the guest is still on the host.
    pub(crate) fn steps(&self, host: &DrainedHost) -> Vec<(Step, bool)> {
        let up = host.state == HostState::Up;
        let allowed = Allowed { cold: self.cold };
        let steps = host.guests.iter().map(|guest| {
            let step = decide(&host.name, up, guest, allowed);
            let asked = self.asked.contains(&guest.id);
            let failed = match step {
                Step::Live | Step::Cold | Step::Offload => asked,
                Step::Confirm => !asked && self.refused.contains_key(&guest.id),
                Step::Wait(_) | Step::Stays(_) => false,
            };
            (step, failed)
        });
        steps.collect()
    }

    /// Records why the service did not accept a request for a guest. The drain repeats a request that the service could
    /// not answer, but not a request that the service refused.
    fn note(&mut self, guest: &str, error: &Error, moves: bool) {
        let why = words(error).2.chars().take(REASON).collect();
        if !matches!(error, Error::Refused { status: 400..=499, .. }) {
            self.unanswered.insert(guest.to_owned(), why);
            return;
        }
        self.refused.insert(guest.to_owned(), why);
        if moves {
            self.asked.insert(guest.to_owned());
        } else {
            self.asked.remove(guest);
        }
    }

    /// The drain that a form describes.
    fn of(fields: &Fields, guests: usize) -> Self {
        let refusal = |field: &str| {
            let (guest, why) = field.split_once(' ')?;
            Some((guest.to_owned(), why.to_owned()))
        };
        let total: Option<usize> = fields.text("total").and_then(|text| text.parse().ok());
        Self {
            cold: fields.text("cold").is_some(),
            asked: fields.0.all("asked").map(str::to_owned).collect(),
            total: total.unwrap_or_default().max(guests),
            refused: fields.0.all("refused").filter_map(refusal).collect(),
            unanswered: BTreeMap::new(),
        }
    }

    /// The fields of the next round's form.
    pub(crate) fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![("total", self.total.to_string())];
        if self.cold {
            fields.push(("cold", "1".to_owned()));
        }
        fields.extend(self.asked.iter().map(|guest| ("asked", guest.clone())));
        let reasons = self.refused.iter().enumerate().map(|(n, (guest, why))| {
            let why = if n < REASONS { why } else { "" };
            ("refused", format!("{guest} {why}"))
        });
        fields.extend(reasons);
        fields
    }

    /// True if another round can do more, or if an operation of a guest is still in progress.
    pub(crate) fn goes_on(&self, host: &DrainedHost) -> bool {
        let steps = self.steps(host);
        steps.iter().any(|(step, failed)| !failed && !matches!(step, Step::Stays(_)))
    }
}

async fn show(
    State(dashboard): State<Dashboard>,
    viewer: Viewer,
    Path(name): Path<String>,
) -> Result<Html, Refusal> {
    shown(&dashboard, &viewer, &name, None).await
}

async fn shown(
    dashboard: &Dashboard,
    viewer: &Viewer,
    name: &str,
    draining: Option<&Draining>,
) -> Result<Html, Refusal> {
    let found = find(dashboard, viewer, name).await?;
    let changes = dashboard.0.compute.policy.allows_own(&viewer.context, CHANGE_RULE);
    let session = &viewer.session;
    Ok(Html(page::page(&page::Shown { session, found: &found, changes, draining })))
}

/// The page after a round of a drain. The page's script gets only the part about the drain, so that nothing else is read.
async fn after_round(
    dashboard: &Dashboard,
    viewer: &Viewer,
    name: &str,
    draining: Option<&Draining>,
    script: bool,
) -> Result<Html, Refusal> {
    if !script {
        return shown(dashboard, viewer, name, draining).await;
    }
    let (_, host) = explained(dashboard, viewer, name).await?;
    let changes = dashboard.0.compute.policy.allows_own(&viewer.context, CHANGE_RULE);
    let session = &viewer.session;
    Ok(Html(page::drain(&page::Drain { session, host: &host, changes, draining })))
}

/// One round of a drain.
async fn drain(
    State(dashboard): State<Dashboard>,
    Path(name): Path<String>,
    headers: HeaderMap,
    form: Form,
) -> Result<Html, Refusal> {
    let script = headers.contains_key("hx-request");
    let Form { viewer, fields } = form;
    let (_, host) = explained(&dashboard, &viewer, &name).await?;
    match (host.status, fields.text("total")) {
        (HostStatus::Enabled, None) => {
            let reason = fields.text("reason").unwrap_or(texts::DRAINED_BY);
            set_status(&dashboard, &viewer, &host.service_id, disabled(Some(reason))).await?;
        }
        // Another operator has enabled the host since the last round, which ends the drain.
        (HostStatus::Enabled, Some(_)) => {
            return after_round(&dashboard, &viewer, &name, None, script).await;
        }
        (HostStatus::Disabled, _) => {}
    }
    let mut draining = Draining::of(&fields, host.guests.len());
    let mut moving = host.guests.iter().filter(|guest| guest.is_moving()).count();
    for (guest, (step, failed)) in host.guests.iter().zip(draining.steps(&host)) {
        let moves = !matches!(step, Step::Confirm);
        let Some(body) = step.request().filter(|_| !failed && (!moves || moving < PARALLEL)) else {
            continue;
        };
        let path = format!("/compute/v2.1/servers/{}/action", escaped(&guest.id));
        match dashboard.0.cloud.post(&viewer.caller, &path, body).await {
            Ok(_) if moves => drop(draining.asked.insert(guest.id.clone())),
            Ok(_) => {}
            // The server was deleted meanwhile.
            Err(error) if error.is(404) => continue,
            Err(error @ Error::NoSession) => return Err(error.into()),
            Err(error) => draining.note(&guest.id, &error, moves),
        }
        moving += usize::from(moves);
    }
    after_round(&dashboard, &viewer, &name, Some(&draining), script).await
}

/// The status of a disabled host. The service refuses an empty reason.
fn disabled(reason: Option<&str>) -> Value {
    match reason {
        Some(reason) => json!({"status": "disabled", "disabled_reason": reason}),
        None => json!({"status": "disabled"}),
    }
}

/// Enables or disables a host.
async fn set_status(
    dashboard: &Dashboard,
    viewer: &Viewer,
    service: &str,
    status: Value,
) -> Result<(), Error> {
    let path = format!("/compute/v2.1/os-services/{}", escaped(service));
    let cloud = &dashboard.0.cloud;
    cloud.send(&viewer.caller, Method::PUT, &path, Some(status)).await.map(drop)
}

fn back(name: &str) -> Response {
    Redirect::to(&format!("{}/hosts/{}", super::PATH, escaped(name))).into_response()
}

/// `GET` of the address that a browser without scripts shows after a round of a drain.
async fn left(Path(name): Path<String>) -> Response {
    back(&name)
}

async fn enable(
    State(dashboard): State<Dashboard>,
    Path(name): Path<String>,
    form: Form,
) -> Result<Response, Refusal> {
    let (_, host) = explained(&dashboard, &form.viewer, &name).await?;
    set_status(&dashboard, &form.viewer, &host.service_id, json!({"status": "enabled"})).await?;
    Ok(back(&name))
}

async fn disable(
    State(dashboard): State<Dashboard>,
    Path(name): Path<String>,
    form: Form,
) -> Result<Response, Refusal> {
    let (_, host) = explained(&dashboard, &form.viewer, &name).await?;
    let status = disabled(form.fields.text("reason"));
    set_status(&dashboard, &form.viewer, &host.service_id, status).await?;
    Ok(back(&name))
}

async fn change_device(
    State(dashboard): State<Dashboard>,
    Path((name, uuid, change)): Path<(String, String, String)>,
    form: Form,
) -> Result<Response, Refusal> {
    let change = match change.as_str() {
        "enable" => "enable",
        "disable" => "disable",
        _ => return Err(Error::NoPage.into()),
    };
    let path = format!("/accelerator/v2/devices/{}/{change}", escaped(&uuid));
    let cloud = &dashboard.0.cloud;
    cloud.send(&form.viewer.caller, Method::POST, &path, None).await?;
    Ok(back(&name))
}

#[cfg(test)]
mod tests {
    use kilonova_wire::query::Query;

    use super::*;

    fn host(state: &str, guests: Value) -> DrainedHost {
        let host = json!({"name": "a", "service_id": "s", "state": state, "status": "disabled",
            "disabled_reason": null, "accelerators_not_free": 0, "guests": guests});
        serde_json::from_value(host).unwrap()
    }

    fn guest(id: &str, state: &str) -> Value {
        json!({"id": id, "name": id, "status": "ACTIVE", "vm_state": state, "host": "a",
            "cannot_move_running": null, "operation": null, "move": null})
    }

    #[test]
    fn a_drain_goes_on_until_nothing_moves_by_itself() {
        let both = host("up", json!([guest("one", "active"), guest("two", "suspended")]));
        let mut draining = Draining { total: 2, ..Draining::default() };
        assert!(draining.goes_on(&both));
        let steps = draining.steps(&both);
        assert!(matches!(steps[0], (Step::Live, false)) && matches!(steps[1].0, Step::Stays(_)));
        // The move was requested, and the server is still here without an operation: the move failed.
        draining.asked.insert("one".into());
        assert!(draining.steps(&both)[0].1 && !draining.goes_on(&both));
        let mut busy = guest("one", "active");
        busy["operation"] = json!({"action": "live-migration", "waits_for": "host b"});
        let busy = host("up", json!([busy]));
        assert!(draining.goes_on(&busy) && busy.guests[0].is_moving());
        assert!(!draining.goes_on(&host("up", json!([]))));
        assert!(!draining.goes_on(&host("down", json!([guest("three", "active")]))));
    }

    fn refused(status: u16, message: &str) -> Error {
        Error::Refused { status, message: message.into(), request: None, retry_after: None }
    }

    #[test]
    fn a_move_that_the_service_could_not_answer_is_requested_again() {
        let both = host("up", json!([guest("one", "active"), guest("two", "active")]));
        let mut draining = Draining { total: 2, ..Draining::default() };
        draining.note("one", &refused(409, "No valid host"), true);
        draining.note("two", &refused(503, ""), true);
        assert!(matches!(draining.steps(&both)[..], [(Step::Live, true), (Step::Live, false)]));
        assert!(draining.goes_on(&both));
        assert_eq!(draining.refused["one"], "No valid host");
        assert_eq!(draining.unanswered["two"], texts::UNAVAILABLE_TEXT);
    }

    /// The drain that the form of the next round describes.
    fn next(draining: &Draining) -> Draining {
        let fields = draining.fields();
        let pairs = fields.iter().map(|(name, value)| format!("{name}={}", escaped(value)));
        let fields = Fields(Query::parse(&pairs.collect::<Vec<_>>().join("&")));
        Draining::of(&fields, 0)
    }

    #[test]
    fn a_refusal_is_kept_and_not_repeated() {
        let mut kept = guest("two", "resized");
        kept["host"] = "b".into();
        kept["move"] = json!({"type": "migration", "status": "finished", "source": "a"});
        let both = host("up", json!([guest("one", "active"), kept]));
        let mut draining = Draining { total: 2, cold: true, ..Draining::default() };
        draining.asked.insert("two".into());
        assert!(matches!(draining.steps(&both)[1], (Step::Confirm, false)));
        draining.note("one", &refused(400, "No valid host"), true);
        draining.note("two", &refused(409, "it is locked & busy"), false);
        let draining = next(&next(&draining));
        assert!(matches!(draining.steps(&both)[..], [(Step::Live, true), (Step::Confirm, true)]));
        assert!(!draining.goes_on(&both) && draining.cold && draining.total == 2);
        assert_eq!(draining.refused["one"], "No valid host");
        assert_eq!(draining.refused["two"], "it is locked & busy");
        // The reasons of many refusals do not exceed the size limit of a form.
        let mut many = Draining::default();
        for guest in 0..1000 {
            let guest = format!("a5a5a5a5-0000-4000-8000-{guest:012}");
            many.note(&guest, &refused(400, &"why ".repeat(100)), true);
        }
        let size = |(name, value): &(&str, String)| name.len() + 2 + escaped(value).len();
        assert!(many.fields().iter().map(size).sum::<usize>() < 190 * 1024);
        assert_eq!(next(&many).refused.len(), 1000);
    }
}
