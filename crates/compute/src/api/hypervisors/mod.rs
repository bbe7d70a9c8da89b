//! `/os-hypervisors`: compute hosts and their usage.
//!
//! A hypervisor has the id of its root provider, as in Nova, so that operators can look up one from
//! the other. The route `search` ended with 2.53, `statistics` and `uptime` with 2.88.

mod list;
mod view;

use axum::Json;
use axum::extract::{Path, State};
use kilonova_access::{Routes, get};
use kilonova_compute_app::{Compute, Error, microversions};
use kilonova_compute_db::hosts::{self, Host};
use kilonova_compute_db::usage::{self, HostUsage};
use kilonova_ids::{ProviderId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::query::Query;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Microversion, Refusal, time};
use serde_json::{Value, json};

use super::input;

/// A host and its usage.
type HostWithUsage = (Host, HostUsage);

pub(super) fn routes() -> Routes<Compute> {
    Routes::new()
        .route("/v2.1/os-hypervisors", [get("os_compute_api:os-hypervisors:list", list::brief)])
        .route(
            "/v2.1/os-hypervisors/detail",
            [get("os_compute_api:os-hypervisors:list-detail", list::detail)],
        )
        .route(
            "/v2.1/os-hypervisors/statistics",
            [get("os_compute_api:os-hypervisors:statistics", statistics)],
        )
        .route("/v2.1/os-hypervisors/{id}", [get("os_compute_api:os-hypervisors:show", show)])
        .route(
            "/v2.1/os-hypervisors/{id}/uptime",
            [get("os_compute_api:os-hypervisors:uptime", uptime)],
        )
        .route(
            "/v2.1/os-hypervisors/{id}/search",
            [get("os_compute_api:os-hypervisors:search", list::search)],
        )
        .route(
            "/v2.1/os-hypervisors/{id}/servers",
            [get("os_compute_api:os-hypervisors:servers", list::servers)],
        )
}

/// All hosts with their usage, which reads all servers.
fn with_usage(tx: &mut Tx<'_>) -> Result<Vec<HostWithUsage>, Error> {
    let mut usages = usage::of_hosts(tx)?;
    let hosts = hosts::all(tx)?;
    Ok(hosts
        .into_iter()
        .map(|host| {
            let usage = usages.remove(&host.host).unwrap_or_default();
            (host, usage)
        })
        .collect())
}

async fn find(
    compute: &Compute,
    id: &str,
    version: Microversion,
) -> Result<HostWithUsage, Refusal> {
    let not_found = || Refusal::not_found(format!("Hypervisor with ID '{id}' could not be found."));
    let by_uuid = version >= microversions::SERVICE_UUIDS;
    let uuid = parse_uuid_like::<ProviderId>(id);
    if by_uuid && uuid.is_none() {
        return Err(Refusal::bad_request(format!("Invalid uuid {id}")));
    }
    let number = id.parse::<i64>().ok();
    let found = move |tx: &mut Tx<'_>| -> Result<Option<HostWithUsage>, Error> {
        let host = match (by_uuid, uuid, number) {
            (true, Some(uuid), _) => hosts::by_root(tx, uuid)?,
            (false, _, Some(number)) => hosts::by_number(tx, number)?,
            (true, None, _) | (false, _, None) => None,
        };
        let Some(host) = host else { return Ok(None) };
        let usage = usage::of_one(tx, &host.host)?;
        Ok(Some((host, usage)))
    };
    compute.store.read(found).await?.ok_or_else(not_found)
}

async fn show(
    State(compute): State<Compute>,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let mut with_servers = false;
    if version >= microversions::SERVICE_UUIDS {
        input::check_query_keys(&query, &["with_servers"])?;
        with_servers = input::query_boolean(&query, "with_servers")?;
    }
    let (host, usage) = find(&compute, &id, version).await?;
    let mut shown = view::detail(&compute.fleet, &host, &usage, version, time::now());
    if with_servers {
        view::add_servers(&mut shown, &usage, version);
    }
    Ok(Json(json!({"hypervisor": shown})))
}

async fn uptime(
    State(compute): State<Compute>,
    version: Microversion,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    input::check_microversion(version, microversions::before(microversions::HYPERVISOR_UPTIME))?;
    find(&compute, &id, version).await?;
    let why = "The nodes do not report how long their host has been up.";
    Err(Refusal::new(Kind::NotImplemented, why))
}

async fn statistics(
    State(compute): State<Compute>,
    version: Microversion,
) -> Result<Json<Value>, Refusal> {
    input::check_microversion(version, microversions::before(microversions::HYPERVISOR_UPTIME))?;
    let hosts = compute.store.read(with_usage).await?;
    let sum = |of: fn(&HostWithUsage) -> i64| hosts.iter().map(of).sum::<i64>();
    Ok(Json(json!({"hypervisor_statistics": {
        "count": hosts.len(),
        "vcpus": sum(|(host, _)| host.vcpus),
        "vcpus_used": sum(|(_, usage)| usage.vcpus),
        "memory_mb": sum(|(host, _)| host.memory_mb),
        "memory_mb_used": sum(|(_, usage)| usage.memory_mb),
        "free_ram_mb": sum(|(host, usage)| host.memory_mb - usage.memory_mb),
        "local_gb": sum(|(host, _)| host.disk_gb),
        "local_gb_used": sum(|(_, usage)| usage.disk_gb),
        "free_disk_gb": sum(|(host, usage)| host.disk_gb - usage.disk_gb),
        "disk_available_least": sum(|(host, usage)| host.disk_gb - usage.disk_gb),
        "current_workload": sum(|(_, usage)| usage.busy),
        "running_vms": sum(|(_, usage)| usage.servers.len() as i64),
    }})))
}
