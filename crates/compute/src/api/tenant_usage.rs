//! `/os-simple-tenant-usage`: hours of servers, processors, memory and disk, by project. Hours that
//! have not passed yet are not counted.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use kilonova_access::{Caller, Routes, get};
use kilonova_ids::{ServerId, parse_uuid_like};
use kilonova_wire::paging::Page;
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Fault, Microversion, time};
use serde_json::{Map, Value, json};

use super::{input, links};
use crate::db::tenant_usage::{self as db, Ran};
use crate::{Compute, Error, microversions};

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

/// What is asked for.
struct Asked {
    start: i64,
    stop: i64,
    detailed: bool,
    page: Page,
}

impl Asked {
    fn read(query: &Query, version: Microversion) -> Result<Self, Fault> {
        let paged = version >= microversions::USAGE_PAGES;
        if version >= microversions::STRICT_REQUESTS {
            input::only(query, &["start", "end", "detailed", "limit", "marker"])?;
        }
        let at = |key: &str| -> Result<Option<i64>, Fault> {
            let text = query.get(key).filter(|text| !text.is_empty());
            let read = |text| {
                time::parse(text).ok_or_else(|| {
                    Fault::bad_request(format!("Datetime is in invalid format: {key}"))
                })
            };
            text.map(read).transpose()
        };
        let stop = at("end")?.unwrap_or_else(time::now_micros);
        let start = at("start")?.unwrap_or(stop - 1);
        if start >= stop {
            return Err(Fault::bad_request(
                "Invalid start time. The start time cannot occur after the end time.",
            ));
        }
        let page =
            if paged { Page::read(query)? } else { Page { limit: usize::MAX, marker: None } };
        Ok(Self { start, stop, detailed: query.get("detailed") == Some("1"), page })
    }
}

/// What a project used.
#[derive(Default)]
struct Sum {
    hours: f64,
    vcpus: f64,
    memory_mb: f64,
    disk_gb: f64,
    servers: Vec<Value>,
}

impl Sum {
    fn add(&mut self, ran: &Ran, asked: &Asked, now: i64) {
        let end = ran.deleted_at.unwrap_or(now).min(asked.stop).min(now);
        let hours = micros_as_hours(end - ran.launched_at.max(asked.start));
        self.hours += hours;
        self.vcpus += hours * ran.vcpus as f64;
        self.memory_mb += hours * ran.memory_mb as f64;
        self.disk_gb += hours * ran.disk_gb as f64;
        let state = if ran.deleted_at.is_some() { "terminated" } else { &ran.state };
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
            "uptime": (ran.deleted_at.unwrap_or(now) - ran.launched_at).max(0) / 1_000_000,
        }));
    }

    fn shown(self, project: &str, asked: &Asked, detailed: bool) -> Value {
        let mut shown = json!({
            "tenant_id": project,
            "start": time::naive_micros(asked.start),
            "stop": time::naive_micros(asked.stop),
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

fn micros_as_hours(micros: i64) -> f64 {
    micros.max(0) as f64 / 3_600_000_000.0
}

/// What each project used, and the last server counted when more follow.
async fn sums(
    compute: &Compute,
    asked: &Asked,
    project: Option<String>,
) -> Result<(BTreeMap<String, Sum>, Option<String>), Fault> {
    let (span, marker) = ((asked.start, asked.stop), asked.page.marker.clone());
    let limit = asked.page.limit;
    let most = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let mut ran = compute
        .store
        .read(move |tx| {
            let after = match &marker {
                None => 0,
                Some(marker) => {
                    let id = parse_uuid_like::<ServerId>(marker);
                    let number = id.map(|id| db::number(tx, id)).transpose()?.flatten();
                    number.ok_or_else(|| {
                        Fault::bad_request(format!("marker [{}] not found", marker.escape_debug()))
                    })?
                }
            };
            db::between(tx, span, project.as_deref(), after, most)
        })
        .await
        .map_err(|error: Error| Fault::from(error))?;
    let more = ran.len() > limit;
    ran.truncate(limit);
    let now = time::now_micros();
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    for one in &ran {
        sums.entry(one.project_id.clone()).or_default().add(one, asked, now);
    }
    Ok((sums, ran.last().filter(|_| more).map(|last| last.id.clone())))
}

async fn list(
    State(compute): State<Compute>,
    version: Microversion,
    base: Base,
    query: Query,
) -> Result<Json<Value>, Fault> {
    let asked = Asked::read(&query, version)?;
    let (sums, last) = sums(&compute, &asked, None).await?;
    let usages: Vec<Value> = sums
        .into_iter()
        .map(|(project, sum)| sum.shown(&project, &asked, asked.detailed))
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
) -> Result<Json<Value>, Fault> {
    caller.may_on(&[("project_id", &project)])?;
    let asked = Asked::read(&query, version)?;
    let (mut sums, last) = sums(&compute, &asked, Some(project.clone())).await?;
    let usage = sums.remove(&project).map(|sum| sum.shown(&project, &asked, true));
    let usage = usage.unwrap_or_else(|| json!({}));
    let mut shown = Map::from_iter([("tenant_usage".to_owned(), usage)]);
    if let Some(last) = last {
        let path = format!("{PATH}/{project}");
        shown.insert("tenant_usage_links".into(), links::next(&base, &path, &query, &last));
    }
    Ok(Json(shown.into()))
}
