//! `/kilonova/hosts/{host}`: the state of a host, its guests with their devices, which of them cannot live-migrate,
//! and its drain.

use axum::Json;
use axum::extract::{Path, State};
use kilonova_compute_app::Compute;
use kilonova_compute_app::explain::{Awaited, Guest, HostExplanation, HostNow, explain_host};
use kilonova_compute_db::drains::{Drain, DrainMove};
use kilonova_compute_db::moves::Move;
use kilonova_compute_db::servers::TaskState;
use kilonova_flow::Operation;
use kilonova_ids::HostName;
use kilonova_wire::Refusal;
use kilonova_wire::time::{self, zulu};
use serde_json::{Value, json};

use crate::api::servers::view::status;

pub(super) async fn show(
    State(compute): State<Compute>,
    Path(name): Path<HostName>,
) -> Result<Json<Value>, Refusal> {
    shown(&compute, &name).await
}

/// The answer that describes a host.
pub(super) async fn shown(compute: &Compute, name: &HostName) -> Result<Json<Value>, Refusal> {
    let (host, fleet) = (name.clone(), compute.fleet.clone());
    let explained =
        compute.store.read(move |tx| explain_host(tx, &fleet, &host, time::now())).await?;
    let explained = explained.ok_or_else(|| {
        Refusal::not_found(format!("Compute host {} could not be found.", name.escape_debug()))
    })?;
    Ok(Json(json!({"host": view(&explained)})))
}

fn view(explained: &HostExplanation) -> Value {
    let mut shown = host_view(&explained.host);
    let row = &explained.host.row;
    shown["zone"] = row.availability_zone.as_str().into();
    shown["address"] = row.host_ip.as_str().into();
    shown["hypervisor_type"] = row.hypervisor_type.as_str().into();
    shown["hypervisor_version"] = row.hypervisor_version.into();
    shown["agent_version"] = row.agent_version.as_deref().into();
    shown["registered_at"] = zulu(row.reported_at).into();
    shown["clock_ahead_seconds"] = row.clock_skew.map(|skew| skew.as_secs_f64()).into();
    shown["accelerators_not_free"] = explained.devices_held.into();
    shown["numa_in_placement"] = explained.divided.into();
    shown["numa_not_in_placement"] = explained.undivided.as_deref().into();
    shown["guests"] = explained.guests.iter().map(guest).collect();
    shown["drain"] = explained.drain.as_ref().map(|(drain, moves)| drain_view(drain, moves)).into();
    shown
}

fn drain_view(drain: &Drain, moves: &[DrainMove]) -> Value {
    let moves = moves.iter().map(|one| {
        json!({
            "server": one.server,
            "state": one.state(),
            "tries": one.attempts,
            "why": one.why(),
            "next_try_at": one.next_at.map(zulu),
        })
    });
    json!({
        "state": drain.state.as_str(),
        "cold": drain.cold,
        "parallel": drain.parallel,
        "total": drain.total,
        "user_id": drain.user,
        "request_id": drain.request_id,
        "begun_at": zulu(drain.begun_at),
        "ended_at": drain.ended_at.map(zulu),
        "moves": moves.collect::<Vec<_>>(),
    })
}

/// The view of a host's state.
pub(super) fn host_view(host: &HostNow) -> Value {
    let row = &host.row;
    json!({
        "name": row.host,
        "service_id": row.id,
        "state": if host.up { "up" } else { "down" },
        "forced_down": row.forced_down,
        "status": if row.enabled { "enabled" } else { "disabled" },
        "disabled_reason": row.disabled_reason,
        "last_heard_of": zulu(row.last_seen),
        "epoch": row.epoch,
    })
}

/// The view of an open operation.
pub(super) fn operation_view(
    open: &Operation,
    awaited: Option<&Awaited>,
    unreadable: Option<&str>,
) -> Value {
    json!({
        "action": open.kind,
        "request_id": open.request_id,
        "user_id": open.user_id,
        "step": open.step,
        "since": zulu(open.updated_at),
        "started_at": zulu(open.created_at),
        "waits_for": awaited.map(Awaited::text),
        "waits_for_host": awaited.and_then(|one| one.host.as_deref()),
        "unreadable": unreadable,
    })
}

/// The view of a migration.
pub(super) fn migration_view(one: &Move) -> Value {
    json!({
        "id": one.number,
        "uuid": one.id,
        "type": one.kind.as_str(),
        "status": one.status,
        "source": one.source,
        "destination": one.dest,
        "holds_on": one.held_on,
        "open": one.open,
        "updated_at": zulu(one.updated_at),
    })
}

fn guest(guest: &Guest) -> Value {
    let server = guest.server.as_ref();
    let unreadable = guest.unreadable.as_deref();
    let operation = guest.operation.as_ref();
    let operation = operation.map(|one| operation_view(one, guest.awaited.as_ref(), unreadable));
    json!({
        "id": guest.id,
        "name": server.map(|server| server.name.as_str()),
        "status": server.map(status),
        "vm_state": server.map(|server| server.vm_state.as_str()),
        "task_state": server.and_then(|server| server.task_state.map(TaskState::as_str)),
        "host": server.and_then(|server| server.host.as_deref()),
        "guest_here": guest.present,
        "devices": guest.devices,
        "cannot_move_running": guest.stays,
        "operation": operation,
        "move": guest.open.as_ref().map(migration_view),
    })
}
