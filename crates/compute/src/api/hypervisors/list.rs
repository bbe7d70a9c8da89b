//! Lists of hypervisors, and the older `search` and `servers` routes.

use axum::Json;
use axum::extract::{Path, State};
use kilonova_compute_app::{Compute, microversions};
use kilonova_compute_db::hosts::{self, Host};
use kilonova_wire::paging::Page;
use kilonova_wire::query::Query;
use kilonova_wire::{Microversion, Refusal, time};
use serde_json::{Value, json};

use super::{Parts, Shown, view, with_parts};
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
    let hosts = matching(all(&compute).await?, &pattern)?;
    Ok(Json(json!({"hypervisors": shown(&compute, hosts, version, false, false).await?})))
}

pub(super) async fn servers(
    State(compute): State<Compute>,
    version: Microversion,
    Path(pattern): Path<String>,
) -> Result<Json<Value>, Refusal> {
    input::check_microversion(version, microversions::before(microversions::SERVICE_UUIDS))?;
    let hosts = matching(all(&compute).await?, &pattern)?;
    Ok(Json(json!({"hypervisors": shown(&compute, hosts, version, false, true).await?})))
}

async fn all(compute: &Compute) -> Result<Vec<Host>, Refusal> {
    Ok(compute.store.read(hosts::all).await?)
}

fn matching(mut hosts: Vec<Host>, pattern: &str) -> Result<Vec<Host>, Refusal> {
    hosts.retain(|host| host.host.contains(pattern));
    if hosts.is_empty() {
        let why = format!("No hypervisor matching '{pattern}' could be found.");
        return Err(Refusal::not_found(why));
    }
    Ok(hosts)
}

/// The views of these hosts. Reads the servers of these hosts only, and only if the views show
/// usage or servers.
async fn shown(
    compute: &Compute,
    hosts: Vec<Host>,
    version: Microversion,
    detail: bool,
    servers: bool,
) -> Result<Vec<Value>, Refusal> {
    let parts = Parts { usage: view::has_usage(detail, version), servers };
    let hosts = match parts {
        Parts { usage: false, servers: false } => hosts.into_iter().map(Shown::bare).collect(),
        _ => compute.store.read(move |tx| with_parts(tx, hosts.clone(), parts)).await?,
    };
    let (fleet, now) = (&compute.fleet, time::now());
    let view = |one: &Shown| {
        let mut shown = match detail {
            true => view::detail(fleet, &one.host, &one.usage, version, now),
            false => view::brief(fleet, &one.host, version, now),
        };
        if servers {
            view::add_servers(&mut shown, &one.servers, version);
        }
        shown
    };
    Ok(hosts.iter().map(view).collect())
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
            let hosts = matching(all(compute).await?, pattern)?;
            let shown = shown(compute, hosts, version, detail, with_servers).await?;
            return Ok(Json(json!({"hypervisors": shown})));
        }
    }
    let hosts = all(compute).await?;
    if version < microversions::HYPERVISOR_PAGES {
        let shown = shown(compute, hosts, version, detail, with_servers).await?;
        return Ok(Json(json!({"hypervisors": shown})));
    }
    let page = Page::read(query)?;
    let Some((hosts, more)) = page.cut(hosts, |host| view::id(host, version)) else {
        let marker = page.marker.unwrap_or_default();
        return Err(Refusal::bad_request(format!("marker [{marker}] not found")));
    };
    let last = hosts.last().filter(|_| more).map(|host| view::id(host, version));
    let mut answer =
        json!({"hypervisors": shown(compute, hosts, version, detail, with_servers).await?});
    if let Some(last) = last {
        let path = if detail { "os-hypervisors/detail" } else { "os-hypervisors" };
        answer["hypervisors_links"] = links::next(base, path, query, &last);
    }
    Ok(Json(answer))
}
