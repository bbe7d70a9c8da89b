//! `/kilonova/servers/{id}`: all records of a server, even of a deleted one, and the next steps for the
//! operator.
//!
//! The owner's view contains no hosts, no messages from hosts and nothing else that only
//! administrators may see.

use axum::Json;
use axum::extract::{Path, State};
use kilonova_accelerator::AttachType;
use kilonova_accelerator::ledger::{HandleChange, HeldAccelerator, LeftHandle};
use kilonova_access::Caller;
use kilonova_compute_app::Compute;
use kilonova_compute_app::explain::{
    ConsumerAllocations, Room, ServerExplanation, explain_server, next, owner_next, owner_summary,
    summary,
};
use kilonova_compute_db::servers::{Fault as ServerFault, Server, TaskState};
use kilonova_flow::{Event, Operation, Outcome};
use kilonova_ids::{ServerId, parse_uuid_like};
use kilonova_wire::Refusal;
use kilonova_wire::time::{self, zulu};
use serde_json::{Value, json};

use super::host::{host_view, migration_view, operation_view};
use crate::api::servers::view::status;

pub(super) async fn show(
    State(compute): State<Compute>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let missing =
        || Refusal::not_found(format!("Instance {} could not be found.", id.escape_debug()));
    let server: ServerId = parse_uuid_like(&id).ok_or_else(missing)?;
    // The current room is read from memory, which may lag behind a commit that the caller has seen.
    compute.catch_up().await;
    let compute_ = compute.clone();
    let explained = compute
        .store
        .read(move |tx| explain_server(tx, &compute_, server, time::now()))
        .await?
        .filter(|explained| caller.may_see(&explained.server.project_id))
        .ok_or_else(missing)?;
    let shown = if caller.is_admin() { view(&explained) } else { owner_view(&explained) };
    Ok(Json(json!({"server": shown})))
}

/// The owner's view: data that `GET /servers/{id}` and the server's instance actions also show, and the next steps.
fn owner_view(explained: &ServerExplanation) -> Value {
    let mut shown = server_fields(&explained.server);
    for admin_only in ["host", "instance_name"] {
        shown[admin_only].take();
    }
    shown["fault"] = json!(shown_fault(&explained.server).map(|fault| json!({
        "code": fault.code,
        "message": fault.owner_message(),
        "created_at": zulu(fault.created),
    })));
    shown["summary"] = owner_summary(explained).into();
    shown["next"] = json!(owner_next(explained));
    shown["operation"] = json!(explained.operation.as_ref().map(|one| {
        json!({
            "action": one.kind,
            "request_id": one.request_id,
            "user_id": one.user_id,
            "since": zulu(one.updated_at),
            "started_at": zulu(one.created_at),
        })
    }));
    shown["devices"] = explained.held.iter().map(|held| owner_device(explained, held)).collect();
    shown["actions"] =
        explained.actions.iter().map(|(one, events)| owner_action(one, events)).collect();
    shown["room_now"] = json!(
        explained
            .room
            .as_ref()
            .map(|room| json!({"is_there": room.exists, "text": room.owner_text}))
    );
    shown
}

fn owner_device(explained: &ServerExplanation, held: &HeldAccelerator) -> Value {
    let all = device(explained, held);
    let mut shown = json!({});
    for key in ["arq", "state", "held_by", "asked_by", "attached", "resource_class"] {
        shown[key] = all[key].clone();
    }
    shown["device"] = json!({"health": all["device"]["health"]});
    shown
}

fn owner_action(operation: &Operation, events: &[Event]) -> Value {
    let event = |event: &Event| {
        json!({
            "event": event.name,
            "result": event.result,
            "started_at": zulu(event.started_at),
            "finished_at": event.finished_at.map(zulu),
        })
    };
    json!({
        "action": operation.kind,
        "request_id": operation.request_id,
        "user_id": operation.user_id,
        "started_at": zulu(operation.created_at),
        "updated_at": zulu(operation.updated_at),
        "outcome": outcome(operation),
        "events": events.iter().map(event).collect::<Vec<_>>(),
    })
}

fn view(explained: &ServerExplanation) -> Value {
    let mut shown = server_fields(&explained.server);
    shown["summary"] = summary(explained).into();
    shown["next"] = json!(next(explained));
    shown["hosts"] = explained.hosts.iter().map(host_view).collect();
    let unreadable = explained.unreadable.as_deref();
    let operation = explained.operation.as_ref();
    shown["operation"] =
        operation.map(|one| operation_view(one, explained.awaited.as_ref(), unreadable)).into();
    shown["moves"] = explained.moves.iter().map(migration_view).collect();
    shown["devices"] = explained.held.iter().map(|held| device(explained, held)).collect();
    shown["left_behind"] = explained.left.iter().map(left).collect();
    shown["claims"] = explained.allocations.iter().map(claim).collect();
    shown["actions"] = explained.actions.iter().map(|(one, events)| action(one, events)).collect();
    shown["device_changes"] = explained.past.iter().map(change).collect();
    shown["room_now"] = json!(explained.room.as_ref().map(room));
    shown
}

fn server_fields(server: &Server) -> Value {
    let lock =
        |lock: &kilonova_compute_db::servers::Lock| json!({"by": lock.by, "reason": lock.reason});
    let status = shown_status(server);
    json!({
        "id": server.id,
        "name": server.name,
        "project_id": server.project_id,
        "user_id": server.user_id,
        "status": status,
        "vm_state": server.vm_state.as_str(),
        "task_state": server.task_state.map(TaskState::as_str),
        "power_state": server.power_state.number(),
        "host": server.host,
        "instance_name": server.instance_name(),
        "flavor": server.spec.flavor.name,
        "extra_specs": server.spec.flavor.extra_specs,
        "image": server.spec.image,
        "availability_zone": server.spec.availability_zone,
        "locked": server.lock.as_ref().map(lock),
        "created_at": zulu(server.created_at),
        "updated_at": zulu(server.updated_at),
        "launched_at": server.launched_at.map(zulu),
        "deleted_at": server.deleted_at.map(zulu),
        "fault": shown_fault(server).map(fault),
    })
}

fn shown_status(server: &Server) -> &'static str {
    if server.deleted_at.is_some() { "DELETED" } else { status(server) }
}

/// The fault, in the states in which `GET /servers/{id}` shows it.
fn shown_fault(server: &Server) -> Option<&ServerFault> {
    server.fault.as_ref().filter(|_| matches!(shown_status(server), "ERROR" | "DELETED"))
}

fn fault(fault: &ServerFault) -> Value {
    json!({
        "code": fault.code,
        "message": fault.message,
        "created_at": zulu(fault.created),
        "details": fault.details,
    })
}

fn device(explained: &ServerExplanation, held: &HeldAccelerator) -> Value {
    let migration = held.consumer.and_then(|consumer| {
        explained.moves.iter().find(|one| one.id == consumer).map(|one| one.number)
    });
    let asked_by = match &held.profile {
        Some((name, group)) => json!({"device_profile": name, "group": group}),
        None => json!({"flavor": explained.server.spec.flavor.name}),
    };
    let mut shown = json!({
        "arq": held.arq,
        "state": held.state,
        "host": held.host,
        "provider": held.provider,
        "held_by": if migration.is_some() { "migration" } else { "server" },
        "migration": migration,
        "asked_by": asked_by,
        "attached": explained.is_in_document(held),
    });
    if let Some(handle) = &held.handle {
        let is_mdev = handle.attach_type == AttachType::Mdev;
        shown["handle"] = json!({
            "id": handle.id,
            "type": handle.attach_type,
            "address": handle.address,
            "mdev_uuid": is_mdev.then_some(handle.id),
            "mdev_type": (!handle.mdev_type.is_empty()).then_some(&handle.mdev_type),
            "present": handle.present,
        });
        shown["resource_class"] = json!(handle.resource_class);
        shown["provider_name"] = json!(handle.deployable);
        shown["device"] = json!({
            "uuid": handle.device,
            "address": handle.device_address,
            "kind": handle.kind,
            "model": handle.model,
            "status": handle.status,
            "health": handle.health,
            "health_reason": handle.health_reason,
        });
    }
    shown
}

fn left(left: &LeftHandle) -> Value {
    json!({"address": left.address, "host": left.host, "device_address": left.device_address})
}

fn claim(allocations: &ConsumerAllocations) -> Value {
    let amounts: Vec<Value> = allocations
        .amounts
        .iter()
        .map(|held| {
            json!({
                "provider": held.provider,
                "name": held.name,
                "class": held.class,
                "amount": held.amount,
            })
        })
        .collect();
    json!({
        "consumer": allocations.consumer,
        "held_by": if allocations.migration.is_some() { "migration" } else { "server" },
        "migration": allocations.migration,
        "allocations": amounts,
    })
}

fn outcome(operation: &Operation) -> &'static str {
    match operation.outcome {
        Outcome::Open => "in progress",
        Outcome::Done => "done",
        Outcome::Failed => "failed",
        Outcome::Cancelled => "cancelled",
    }
}

fn action(operation: &Operation, events: &[Event]) -> Value {
    json!({
        "action": operation.kind,
        "request_id": operation.request_id,
        "user_id": operation.user_id,
        "started_at": zulu(operation.created_at),
        "updated_at": zulu(operation.updated_at),
        "outcome": outcome(operation),
        "message": operation.message,
        "host_chosen": operation.data["chosen"],
        "hosts_tried": operation.data["tried"],
        "events": events.iter().map(event).collect::<Vec<_>>(),
    })
}

fn event(event: &Event) -> Value {
    json!({
        "event": event.name,
        "host": event.host,
        "result": event.result,
        "details": event.details,
        "started_at": zulu(event.started_at),
        "finished_at": event.finished_at.map(zulu),
    })
}

fn change(change: &HandleChange) -> Value {
    json!({
        "at": zulu(change.at),
        "change": change.change,
        "handle": change.handle,
        "type": change.attach_type,
        "address": change.address,
        "mdev_type": (!change.mdev_type.is_empty()).then_some(&change.mdev_type),
        "host": change.host,
        "request_id": change.request_id,
    })
}

fn room(room: &Room) -> Value {
    let steps: Vec<Value> = room
        .steps
        .iter()
        .map(|step| {
            json!({
                "constraint": step.constraint,
                "text": step.text,
                "removed": step.removed,
                "left": step.left,
            })
        })
        .collect();
    json!({
        "is_there": room.exists,
        "text": room.text,
        "hosts": room.hosts,
        "steps": steps,
        "nearest": room.nearest.as_ref().map(|(name, lacks)| {
            json!({"host": name, "lacks": lacks})
        }),
    })
}
