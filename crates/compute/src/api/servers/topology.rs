//! `GET /servers/{id}/topology`: the NUMA cells of a server. The cells and CPUs of its host are shown
//! only to callers that the policy allows to see them.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use kilonova_access::Caller;
use kilonova_compute_app::{Compute, Error, microversions, numa};
use kilonova_topology::{Cpus, Fitted};
use kilonova_wire::query::Query;
use kilonova_wire::{Microversion, Refusal};
use serde::Serialize;

use super::find::{find, target};
use crate::api::input;

/// The policy rule for the cells and CPUs of the host.
const HOST_RULE: &str = "compute:server:topology:host:index";

#[derive(Serialize)]
pub(super) struct Shown {
    nodes: Vec<Node>,
    pagesize_kb: Option<u64>,
}

#[derive(Serialize)]
struct Node {
    vcpu_set: Cpus,
    memory_mb: u64,
    /// The vCPUs that share a core of the guest. Always empty, because the CPU topology applies to the whole guest.
    siblings: Vec<Cpus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_pinning: Option<BTreeMap<u32, u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_node: Option<u32>,
}

pub(super) async fn topology(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Result<Json<Shown>, Refusal> {
    input::check_microversion(version, microversions::since(microversions::TOPOLOGY))?;
    input::check_no_query(&query, version)?;
    let read = compute.store.read(move |tx| {
        let server = find(tx, &caller, &id)?;
        let of_host = caller.may(HOST_RULE, &target(&server)).is_ok();
        Ok::<_, Error>((numa::fitted(tx, &server)?, of_host))
    });
    let (fitted, of_host) = read.await?;
    Ok(Json(shown(fitted, of_host)))
}

fn shown(fitted: Option<Fitted>, of_host: bool) -> Shown {
    let cells = fitted.map(|fitted| fitted.cells).unwrap_or_default();
    let pagesize_kb = cells.iter().find_map(|cell| cell.page_kib);
    let nodes = cells.into_iter().map(|cell| Node {
        vcpu_set: cell.shared.iter().chain(cell.pins.keys()).copied().collect(),
        memory_mb: cell.memory_mb,
        siblings: Vec::new(),
        host_node: of_host.then_some(cell.host),
        cpu_pinning: of_host.then_some(cell.pins),
    });
    Shown { nodes: nodes.collect(), pagesize_kb }
}
