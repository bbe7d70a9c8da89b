//! `/os-simple-tenant-usage`: hours of servers, vCPUs, memory and disk per project. A period that
//! ends in the future is cut off at the current time, both in the sums and in the answer.
//!
//! Pages are in the order of projects and servers' ids, as in `instance_get_active_by_window_joined` of
//! `nova/db/main/api.py`: clients take the last server of the last project that they were shown as the marker.

use axum::Json;
use axum::extract::{Path, State};
use jiff::{SignedDuration, Timestamp};
use kilonova_access::{Caller, Routes, get};
use kilonova_compute_app::{Compute, Error, microversions};
use kilonova_compute_db::tenant_usage::{self as db, Place, Ran};
use kilonova_ids::{ServerId, parse_uuid_like};
use kilonova_wire::paging::Page;
use kilonova_wire::query::Query;
use kilonova_wire::{Microversion, Refusal, time};
use serde_json::{Map, Value, json};

use super::{input, links};
use crate::api::links::Base;

const PATH: &str = "os-simple-tenant-usage";

pub(super) fn routes() -> Routes<Compute> {
    Routes::new()
        .route(
            "/v2.1/os-simple-tenant-usage",
            [get("os_compute_api:os-simple-tenant-usage:list", list)],
        )
        .route(
            "/v2.1/os-simple-tenant-usage/{project}",
            [get("os_compute_api:os-simple-tenant-usage:show", show)],
        )
}

/// The length of the period of a request without a start.
const SHORTEST: SignedDuration = SignedDuration::from_micros(1);

/// The period and the page of a request.
struct UsageRequest {
    start: Timestamp,
    stop: Timestamp,
    detailed: bool,
    page: Page,
}

impl UsageRequest {
    fn read(query: &Query, version: Microversion) -> Result<Self, Refusal> {
        let paged = version >= microversions::USAGE_PAGES;
        if version >= microversions::STRICT_REQUESTS {
            input::check_query_keys(query, &["start", "end", "detailed", "limit", "marker"])?;
        }
        let at = |key: &str| -> Result<Option<Timestamp>, Refusal> {
            let text = query.get(key).filter(|text| !text.is_empty());
            let read = |text| {
                time::parse(text).ok_or_else(|| {
                    Refusal::bad_request(format!("Datetime is in invalid format: {key}"))
                })
            };
            text.map(read).transpose()
        };
        let stop = at("end")?.unwrap_or_else(time::now);
        let start = at("start")?.unwrap_or_else(|| time::before(stop, SHORTEST));
        if start >= stop {
            return Err(Refusal::bad_request(
                "Invalid start time. The start time cannot occur after the end time.",
            ));
        }
        let stop = stop.min(time::now());
        let page =
            if paged { Page::read(query)? } else { Page { limit: usize::MAX, marker: None } };
        Ok(Self { start, stop, detailed: query.get("detailed") == Some("1"), page })
    }
}

/// The usage of one project.
#[derive(Default)]
struct UsageTotal {
    hours: f64,
    vcpus: f64,
    memory_mb: f64,
    disk_gb: f64,
    servers: Vec<Value>,
}

impl UsageTotal {
    fn add(&mut self, ran: &Ran, request: &UsageRequest, now: Timestamp) {
        let end = ran.deleted_at.unwrap_or(now).min(request.stop).min(now);
        let hours = hours(end.duration_since(ran.launched_at.max(request.start)));
        self.hours += hours;
        self.vcpus += hours * ran.vcpus as f64;
        self.memory_mb += hours * ran.memory_mb as f64;
        self.disk_gb += hours * ran.disk_gb as f64;
        let state = if ran.deleted_at.is_some() { "terminated" } else { ran.state.as_str() };
        self.servers.push(json!({
            "instance_id": ran.id,
            "name": ran.name,
            "hours": hours,
            "tenant_id": ran.project_id,
            "local_gb": ran.disk_gb,
            "memory_mb": ran.memory_mb,
            "vcpus": ran.vcpus,
            "flavor": ran.flavor,
            "started_at": time::naive(ran.launched_at),
            "ended_at": ran.deleted_at.map(time::naive),
            "state": state,
            "uptime": ran.deleted_at.unwrap_or(now).duration_since(ran.launched_at).as_secs().max(0),
        }));
    }

    fn shown(self, project: &str, request: &UsageRequest, detailed: bool) -> Value {
        let mut shown = json!({
            "tenant_id": project,
            "start": time::naive_micros(request.start),
            "stop": time::naive_micros(request.stop),
            "total_hours": self.hours,
            "total_vcpus_usage": self.vcpus,
            "total_memory_mb_usage": self.memory_mb,
            "total_local_gb_usage": self.disk_gb,
        });
        if detailed {
            shown["server_usages"] = self.servers.into();
        }
        shown
    }
}

fn hours(ran: SignedDuration) -> f64 {
    ran.as_micros().max(0) as f64 / 3_600_000_000.0
}

/// The usage of each project, in the order of the pages, and the id of the last server counted if more follow.
async fn totals(
    compute: &Compute,
    request: &UsageRequest,
    project: Option<String>,
) -> Result<(Vec<(String, UsageTotal)>, Option<String>), Refusal> {
    let (span, marker) = ((request.start, request.stop), request.page.marker.clone());
    let limit = request.page.limit;
    let most = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let mut ran = compute
        .store
        .read(move |tx| {
            let after = match &marker {
                None => Place::default(),
                Some(marker) => {
                    let id = parse_uuid_like::<ServerId>(marker);
                    let place = id.map(|id| db::place(tx, id)).transpose()?.flatten();
                    place.ok_or_else(|| {
                        Refusal::bad_request(format!(
                            "marker [{}] not found",
                            marker.escape_debug()
                        ))
                    })?
                }
            };
            db::between(tx, span, project.as_deref(), &after, most).map_err(Error::from)
        })
        .await
        .map_err(|error: Error| Refusal::from(error))?;
    let more = ran.len() > limit;
    ran.truncate(limit);
    let now = time::now();
    let mut totals: Vec<(String, UsageTotal)> = Vec::new();
    for server in &ran {
        match totals.last_mut() {
            Some((project, total)) if *project == server.project_id => {
                total.add(server, request, now);
            }
            _ => {
                let mut total = UsageTotal::default();
                total.add(server, request, now);
                totals.push((server.project_id.clone(), total));
            }
        }
    }
    Ok((totals, ran.last().filter(|_| more).map(|last| last.id.clone())))
}

async fn list(
    State(compute): State<Compute>,
    version: Microversion,
    base: Base,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    let request = UsageRequest::read(&query, version)?;
    let (totals, last) = totals(&compute, &request, None).await?;
    let usages: Vec<Value> = totals
        .into_iter()
        .map(|(project, total)| total.shown(&project, &request, request.detailed))
        .collect();
    let mut shown = Map::from_iter([("tenant_usages".to_owned(), usages.into())]);
    if let Some(last) = last {
        shown.insert("tenant_usages_links".into(), links::next(&base, PATH, &query, &last));
    }
    Ok(Json(shown.into()))
}

async fn show(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    base: Base,
    query: Query,
    Path(project): Path<String>,
) -> Result<Json<Value>, Refusal> {
    caller.may_on(&[("project_id", &project)])?;
    let request = UsageRequest::read(&query, version)?;
    let (totals, last) = totals(&compute, &request, Some(project.clone())).await?;
    let usage = totals.into_iter().next().map(|(_, total)| total.shown(&project, &request, true));
    let usage = usage.unwrap_or_else(|| json!({}));
    let mut shown = Map::from_iter([("tenant_usage".to_owned(), usage)]);
    if let Some(last) = last {
        let path = format!("{PATH}/{project}");
        shown.insert("tenant_usage_links".into(), links::next(&base, &path, &query, &last));
    }
    Ok(Json(shown.into()))
}
