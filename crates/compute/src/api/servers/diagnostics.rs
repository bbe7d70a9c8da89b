//! `/servers/{id}/diagnostics`: the resource usage of a running guest, measured by its host. Before
//! 2.48 the answer contains libvirt's counters; from 2.48 on it has the form that all drivers share,
//! with null for missing values.

use axum::Json;
use axum::extract::{Path, State};
use kilonova_access::Caller;
use kilonova_compute_app::{Compute, ask, microversions, states};
use kilonova_compute_db::servers::Server;
use kilonova_node_api::{DiskUsage, ReplyBody, Topic, Usage};
use kilonova_wire::query::Query;
use kilonova_wire::{Microversion, Refusal};
use serde_json::{Map, Value, json};

use super::find::find;
use crate::api::input;

pub(super) async fn show(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    input::check_no_query(&query, version)?;
    let server = compute.store.read(move |tx| find(tx, &caller, &id)).await?;
    let usage = match ask::ask(&compute, &server, Topic::Diagnostics).await? {
        ReplyBody::Diagnostics(usage) => usage,
        ReplyBody::Unknown { why } => {
            tracing::warn!(server = %server.id, why, "the host has no diagnostics of the guest");
            return Err(states::not_ready(&server).into());
        }
        ReplyBody::Console { .. } => {
            return Err(Refusal::internal("the host's reply is not about diagnostics"));
        }
    };
    if usage.state != "running" {
        return Err(Refusal::conflict(format!(
            "Cannot 'get_diagnostics' instance {} while it is in power state {}",
            server.id, usage.state
        )));
    }
    Ok(Json(if version < microversions::STANDARD_DIAGNOSTICS {
        counters(&usage)
    } else {
        details(&server, &usage)
    }))
}

/// The flat map before 2.48. Its keys contain the names of vCPUs and disks.
fn counters(usage: &Usage) -> Value {
    let mut counters = Map::new();
    for (index, time) in usage.cpu_ns.iter().enumerate() {
        counters.insert(format!("cpu{index}_time"), json!(time));
    }
    for disk in &usage.disks {
        for (name, count) in [
            ("read", disk.read_bytes),
            ("read_req", disk.read_requests),
            ("write", disk.write_bytes),
            ("write_req", disk.write_requests),
            ("errors", disk.errors),
        ] {
            counters.insert(format!("{}_{name}", disk.name), json!(count));
        }
    }
    let kib = |mib: i64| mib.saturating_mul(1024);
    counters.insert("memory".into(), json!(kib(usage.memory_mb)));
    counters.insert("memory-actual".into(), json!(kib(usage.memory_used_mb)));
    Value::Object(counters)
}

fn details(server: &Server, usage: &Usage) -> Value {
    let cpus: Vec<Value> = usage
        .cpu_ns
        .iter()
        .enumerate()
        .map(|(id, time)| json!({"id": id, "time": time, "utilisation": null}))
        .collect();
    let disks: Vec<Value> = usage.disks.iter().map(disk_details).collect();
    json!({
        "state": usage.state,
        // Clients compare this value with the names of upstream's drivers.
        "driver": "libvirt",
        "hypervisor": usage.hypervisor,
        "hypervisor_os": usage.hypervisor_os,
        "uptime": usage.uptime,
        "config_drive": server.spec.config_drive,
        "num_cpus": cpus.len(),
        "num_disks": disks.len(),
        "num_nics": 0,
        "memory_details": {"maximum": usage.memory_mb, "used": usage.memory_used_mb},
        "cpu_details": cpus,
        "disk_details": disks,
        "nic_details": [],
    })
}

fn disk_details(disk: &DiskUsage) -> Value {
    json!({
        "read_bytes": disk.read_bytes,
        "read_requests": disk.read_requests,
        "write_bytes": disk.write_bytes,
        "write_requests": disk.write_requests,
        "errors_count": disk.errors,
    })
}
