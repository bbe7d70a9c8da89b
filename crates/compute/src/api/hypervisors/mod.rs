//! `/os-hypervisors`: compute hosts and their usage.
//!
//! From 2.53 on, a hypervisor has the id of its root provider, as in Nova, so that operators can look
//! up one from the other. The routes `search` and `servers` exist only before 2.53, `statistics` and
//! `uptime` only before 2.88.

mod list;
mod view;

use axum::Json;
use axum::extract::{Path, State};
use kilonova_access::{Routes, get};
use kilonova_compute_app::{Compute, Error, microversions};
use kilonova_compute_db::hosts::{self, Host};
use kilonova_compute_db::usage::{self, HostUsage, NamedServer};
use kilonova_ids::{HostName, ProviderId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::query::Query;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Microversion, Refusal, time};
use serde_json::{Value, json};

use super::input;

/// The parts of a host that an answer shows besides the host itself.
#[derive(Debug, Clone, Copy)]
struct Parts {
    /// The usage.
    usage: bool,
    /// The names of its servers.
    servers: bool,
}

/// A host with the parts that an answer shows; the other parts are empty.
struct Shown {
    host: Host,
    usage: HostUsage,
    servers: Vec<NamedServer>,
}

impl Shown {
    /// A host for an answer that shows no other parts.
    fn bare(host: Host) -> Self {
        Self { host, usage: HostUsage::default(), servers: Vec::new() }
    }
}

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

/// Reads, for these hosts only, the parts that an answer shows.
fn with_parts(tx: &mut Tx<'_>, hosts: Vec<Host>, parts: Parts) -> Result<Vec<Shown>, Error> {
    let names: Vec<HostName> = hosts.iter().map(|host| host.host.clone()).collect();
    let of = |wanted: bool| if wanted { names.as_slice() } else { &[] };
    let mut usages = usage::of_hosts(tx, of(parts.usage))?;
    let mut servers = usage::servers_on(tx, of(parts.servers))?;
    let shown = hosts.into_iter().map(|host| Shown {
        usage: usages.remove(&host.host).unwrap_or_default(),
        servers: servers.remove(&host.host).unwrap_or_default(),
        host,
    });
    Ok(shown.collect())
}

async fn find(
    compute: &Compute,
    id: &str,
    version: Microversion,
    parts: Parts,
) -> Result<Shown, Refusal> {
    let not_found = || Refusal::not_found(format!("Hypervisor with ID '{id}' could not be found."));
    let by_uuid = version >= microversions::SERVICE_UUIDS;
    let uuid = parse_uuid_like::<ProviderId>(id);
    if by_uuid && uuid.is_none() {
        return Err(Refusal::bad_request(format!("Invalid uuid {id}")));
    }
    let number = id.parse::<i64>().ok();
    let found = move |tx: &mut Tx<'_>| -> Result<Option<Shown>, Error> {
        let host = match (by_uuid, uuid, number) {
            (true, Some(uuid), _) => hosts::by_root(tx, uuid)?,
            (false, _, Some(number)) => hosts::by_number(tx, number)?,
            (true, None, _) | (false, _, None) => None,
        };
        Ok(with_parts(tx, host.into_iter().collect(), parts)?.pop())
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
    let parts = Parts { usage: view::has_usage(true, version), servers: with_servers };
    let found = find(&compute, &id, version, parts).await?;
    let mut shown = view::detail(&compute.fleet, &found.host, &found.usage, version, time::now());
    if with_servers {
        view::add_servers(&mut shown, &found.servers, version);
    }
    Ok(Json(json!({"hypervisor": shown})))
}

async fn uptime(
    State(compute): State<Compute>,
    version: Microversion,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    input::check_microversion(version, microversions::before(microversions::HYPERVISOR_UPTIME))?;
    find(&compute, &id, version, Parts { usage: false, servers: false }).await?;
    let why = "The agents do not report how long their host has been up.";
    Err(Refusal::new(Kind::NotImplemented, why))
}

/// The sums over the hosts whose service is enabled. (Upstream: `compute_node_statistics` in
/// `nova/db/main/api.py`.)
async fn statistics(
    State(compute): State<Compute>,
    version: Microversion,
) -> Result<Json<Value>, Refusal> {
    input::check_microversion(version, microversions::before(microversions::HYPERVISOR_UPTIME))?;
    let parts = Parts { usage: true, servers: false };
    let read = compute.store.read(move |tx| {
        let mut counted = hosts::all(tx)?;
        counted.retain(|host| host.enabled);
        with_parts(tx, counted, parts)
    });
    let hosts = read.await?;
    let sum = |of: fn(&Host, &HostUsage) -> i64| -> i64 {
        hosts.iter().map(|one| of(&one.host, &one.usage)).sum()
    };
    Ok(Json(json!({"hypervisor_statistics": {
        "count": hosts.len(),
        "vcpus": sum(|host, _| host.vcpus),
        "vcpus_used": sum(|_, usage| usage.vcpus),
        "memory_mb": sum(|host, _| host.memory_mb),
        "memory_mb_used": sum(|_, usage| usage.memory_mb),
        "free_ram_mb": sum(|host, usage| host.memory_mb - usage.memory_mb),
        "local_gb": sum(|host, _| host.disk_gb),
        "local_gb_used": sum(|_, usage| usage.disk_gb),
        "free_disk_gb": sum(|host, usage| host.disk_gb - usage.disk_gb),
        "disk_available_least": sum(|host, usage| host.disk_gb - usage.disk_gb),
        "current_workload": sum(|_, usage| usage.busy),
        "running_vms": sum(|_, usage| usage.servers),
    }})))
}
