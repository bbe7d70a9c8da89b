//! `/servers/{id}/diagnostics`: what a running guest uses, as its host counts it. Before 2.48 in the
//! words of libvirt, later in those of every driver; what nobody counts is null then.

use axum::Json;
use axum::extract::{Path, State};
use kilonova_access::Caller;
use kilonova_node_api::{DiskUsage, ReplyBody, Topic, Usage};
use kilonova_wire::query::Query;
use kilonova_wire::{Fault, Microversion};
use serde_json::{Map, Value, json};

use super::find::find;
use crate::Compute;
use crate::api::input;
use crate::app::{ask, states};
use crate::db::servers::Server;
use crate::microversions;

pub(super) async fn show(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Result<Json<Value>, Fault> {
    if version >= microversions::STRICT_QUERIES {
        input::only(&query, &[])?;
    }
    let server = compute.store.read(move |tx| find(tx, &caller, &id)).await?;
    let usage = match ask::ask(&compute, &server, Topic::Diagnostics).await? {
        ReplyBody::Diagnostics(usage) => usage,
        ReplyBody::Unknown { why } => {
            tracing::warn!(server = %server.id, why, "no diagnostics");
            return Err(states::not_ready(&server).into());
        }
        ReplyBody::Console { .. } => {
            return Err(Fault::internal("a host answers what was not asked"));
        }
    };
    if usage.state != "running" {
        return Err(Fault::conflict(format!(
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

/// One flat map; processors and disks are in the names.
fn counters(usage: &Usage) -> Value {
    let mut said = Map::new();
    for (index, time) in usage.cpu_ns.iter().enumerate() {
        said.insert(format!("cpu{index}_time"), json!(time));
    }
    for disk in &usage.disks {
        for (what, count) in [
            ("read", disk.read_bytes),
            ("read_req", disk.read_requests),
            ("write", disk.write_bytes),
            ("write_req", disk.write_requests),
            ("errors", disk.errors),
        ] {
            said.insert(format!("{}_{what}", disk.name), json!(count));
        }
    }
    let kib = |mib: i64| mib.saturating_mul(1024);
    said.insert("memory".into(), json!(kib(usage.memory_mb)));
    said.insert("memory-actual".into(), json!(kib(usage.memory_used_mb)));
    Value::Object(said)
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
        // Clients check it against upstream's drivers; guests are libvirt's domains here.
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
