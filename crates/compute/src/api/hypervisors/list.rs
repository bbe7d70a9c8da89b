//! Lists of hypervisors, and the older `search` and `servers` routes.

use axum::Json;
use axum::extract::{Path, State};
use kilonova_compute_app::{Compute, microversions};
use kilonova_compute_db::hosts;
use kilonova_compute_db::usage::HostUsage;
use kilonova_compute_scheduler::fleet::Fleet;
use kilonova_wire::paging::Page;
use kilonova_wire::query::Query;
use kilonova_wire::{Microversion, Refusal, time};
use serde_json::{Value, json};

use super::{HostWithUsage, view, with_usage};
use crate::api::links::Base;
use crate::api::{input, links};

const KNOWN: &[&str] = &["limit", "marker", "hypervisor_hostname_pattern", "with_servers"];

pub(super) async fn brief(
    State(compute): State<Compute>,
    version: Microversion,
    base: Base,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    list(&compute, version, &base, &query, false).await
}

pub(super) async fn detail(
    State(compute): State<Compute>,
    version: Microversion,
    base: Base,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    list(&compute, version, &base, &query, true).await
}

pub(super) async fn search(
    State(compute): State<Compute>,
    version: Microversion,
    Path(pattern): Path<String>,
) -> Result<Json<Value>, Refusal> {
    input::check_microversion(version, microversions::before(microversions::SERVICE_UUIDS))?;
    let hosts = matching(read(&compute, false).await?, &pattern)?;
    Ok(Json(json!({"hypervisors": shown(&compute.fleet, &hosts, version, false, false)})))
}

pub(super) async fn servers(
    State(compute): State<Compute>,
    version: Microversion,
    Path(pattern): Path<String>,
) -> Result<Json<Value>, Refusal> {
    input::check_microversion(version, microversions::before(microversions::SERVICE_UUIDS))?;
    let hosts = matching(read(&compute, true).await?, &pattern)?;
    Ok(Json(json!({"hypervisors": shown(&compute.fleet, &hosts, version, false, true)})))
}

/// All hosts. Without `usage` their usage is empty, and no server is read.
async fn read(compute: &Compute, usage: bool) -> Result<Vec<HostWithUsage>, Refusal> {
    let hosts = match usage {
        true => compute.store.read(with_usage).await?,
        false => {
            let hosts = compute.store.read(hosts::all).await?;
            hosts.into_iter().map(|host| (host, HostUsage::default())).collect()
        }
    };
    Ok(hosts)
}

fn matching(mut hosts: Vec<HostWithUsage>, pattern: &str) -> Result<Vec<HostWithUsage>, Refusal> {
    hosts.retain(|(host, _)| host.host.contains(pattern));
    if hosts.is_empty() {
        let why = format!("No hypervisor matching '{pattern}' could be found.");
        return Err(Refusal::not_found(why));
    }
    Ok(hosts)
}

fn shown(
    fleet: &Fleet,
    hosts: &[HostWithUsage],
    version: Microversion,
    detail: bool,
    servers: bool,
) -> Vec<Value> {
    let now = time::now();
    hosts
        .iter()
        .map(|(host, usage)| {
            let mut shown = match detail {
                true => view::detail(fleet, host, usage, version, now),
                false => view::brief(fleet, host, version, now),
            };
            if servers {
                view::add_servers(&mut shown, usage, version);
            }
            shown
        })
        .collect()
}

async fn list(
    compute: &Compute,
    version: Microversion,
    base: &Base,
    query: &Query,
    detail: bool,
) -> Result<Json<Value>, Refusal> {
    let mut with_servers = false;
    if version >= microversions::SERVICE_UUIDS {
        input::check_query_keys(query, KNOWN)?;
        with_servers = input::query_boolean(query, "with_servers")?;
        if let Some(pattern) = query.get("hypervisor_hostname_pattern") {
            if query.get("limit").is_some() || query.get("marker").is_some() {
                return Err(Refusal::bad_request(
                    "Paging over hypervisors with the hypervisor_hostname_pattern query parameter \
                     is not supported.",
                ));
            }
            let hosts = read(compute, with_servers || view::has_usage(detail, version)).await?;
            let hosts = matching(hosts, pattern)?;
            return Ok(Json(
                json!({"hypervisors": shown(&compute.fleet, &hosts, version, detail, with_servers)}),
            ));
        }
    }
    let hosts = read(compute, with_servers || view::has_usage(detail, version)).await?;
    if version < microversions::HYPERVISOR_PAGES {
        return Ok(Json(
            json!({"hypervisors": shown(&compute.fleet, &hosts, version, detail, with_servers)}),
        ));
    }
    let page = Page::read(query)?;
    let Some((hosts, more)) = page.cut(hosts, |(host, _)| view::id(host, version)) else {
        let marker = page.marker.unwrap_or_default();
        return Err(Refusal::bad_request(format!("marker [{marker}] not found")));
    };
    let mut answer =
        json!({"hypervisors": shown(&compute.fleet, &hosts, version, detail, with_servers)});
    if let Some((last, _)) = hosts.last().filter(|_| more) {
        let path = if detail { "os-hypervisors/detail" } else { "os-hypervisors" };
        answer["hypervisors_links"] = links::next(base, path, query, &view::id(last, version));
    }
    Ok(Json(answer))
}
