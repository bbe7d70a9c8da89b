//! `/servers/{id}/diagnostics`: what is known of a guest. Counters of processors, disks and
//! interfaces stay with the host; what nobody reports is null, as upstream has it.

use axum::Json;
use axum::extract::{Path, State};
use kilonova_wire::query::Query;
use kilonova_wire::{Context, Fault, Microversion};
use serde_json::{Value, json};

use super::find::find;
use crate::api::input;
use crate::db::hosts;
use crate::{Compute, Error};

fn power(state: i64) -> &'static str {
    match state {
        1 => "running",
        3 => "paused",
        4 => "shutdown",
        6 => "crashed",
        7 => "suspended",
        _ => "pending",
    }
}

pub(super) async fn show(
    State(compute): State<Compute>,
    caller: Context,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Result<Json<Value>, Fault> {
    caller.require_admin("os_compute_api:os-server-diagnostics")?;
    if version >= Microversion(2, 102) {
        input::only(&query, &[])?;
    }
    let (server, host) = compute
        .store
        .read(move |tx| {
            let server = find(tx, &caller, &id)?;
            let host = server.host.as_deref().map(|name| hosts::by_name(tx, name)).transpose()?;
            Ok::<_, Error>((server, host.flatten()))
        })
        .await?;
    let Some(host) = host else {
        return Err(Fault::conflict(format!("Instance {} is not ready", server.id)));
    };
    let flavor = &server.spec.flavor;
    if version < Microversion(2, 48) {
        return Ok(Json(json!({"memory": flavor.ram * 1024, "vcpus": flavor.vcpus})));
    }
    Ok(Json(json!({
        "state": power(server.power_state),
        "driver": "libvirt",
        "hypervisor": host.hypervisor_type.to_lowercase(),
        "hypervisor_os": null,
        "uptime": null,
        "config_drive": server.spec.config_drive,
        "num_cpus": flavor.vcpus,
        "num_disks": null,
        "num_nics": 0,
        "memory_details": {"maximum": flavor.ram, "used": null},
        "cpu_details": [],
        "disk_details": [],
        "nic_details": [],
    })))
}
