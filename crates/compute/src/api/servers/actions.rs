//! `/servers/{id}/os-instance-actions`: the journal as Nova shows it.

use axum::Json;
use axum::extract::{Path, State};
use kilonova_flow::{self as flow, Event, Operation, Outcome};
use kilonova_ids::{ServerId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::{Context, Fault, Microversion, time};
use serde_json::{Value, json};

use crate::{Compute, Error};

fn view(operation: &Operation, version: Microversion) -> Value {
    let message = match operation.outcome {
        Outcome::Failed => json!("Error"),
        _ => Value::Null,
    };
    let mut shown = json!({
        "action": operation.kind,
        "instance_uuid": operation.subject,
        "request_id": operation.request_id,
        "user_id": operation.user_id,
        "project_id": operation.project_id,
        "start_time": time::naive(operation.created_at),
        "message": message,
    });
    if version >= Microversion(2, 58) {
        shown["updated_at"] = time::naive(operation.updated_at).into();
    }
    shown
}

fn event(event: &Event, context: &Context, version: Microversion) -> Value {
    let mut shown = json!({
        "event": event.name,
        "start_time": time::naive(event.started_at),
        "finish_time": event.finished_at.map(time::naive),
        "result": event.result,
        "traceback": null,
    });
    if version >= Microversion(2, 62) && context.is_admin() {
        shown["host"] = json!(event.host);
    }
    if version >= Microversion(2, 84) {
        shown["details"] = json!(event.details);
    }
    shown
}

/// Actions outlive their server (2.21); its project is in each of them.
fn history(tx: &mut Tx<'_>, context: &Context, id: &str) -> Result<Vec<Operation>, Error> {
    let server: ServerId = parse_uuid_like(id).ok_or_else(|| super::find::missing(id))?;
    let operations = flow::history(tx, server, 1000)?;
    let known = operations.last().is_some_and(|first| context.may_see(&first.project_id));
    if known { Ok(operations) } else { Err(super::find::missing(id).into()) }
}

pub(super) async fn list(
    State(compute): State<Compute>,
    context: Context,
    version: Microversion,
    Path(id): Path<String>,
) -> Result<Json<Value>, Fault> {
    let operations = compute.store.read(move |tx| history(tx, &context, &id)).await?;
    let shown: Vec<Value> = operations.iter().map(|o| view(o, version)).collect();
    Ok(Json(json!({"instanceActions": shown})))
}

pub(super) async fn show(
    State(compute): State<Compute>,
    context: Context,
    version: Microversion,
    Path((id, request)): Path<(String, String)>,
) -> Result<Json<Value>, Fault> {
    let caller = context.clone();
    let (operation, events) = compute
        .store
        .read(move |tx| {
            let server: ServerId = parse_uuid_like(&id).ok_or_else(|| super::find::missing(&id))?;
            history(tx, &caller, &id)?;
            flow::one(tx, server, &request)?.ok_or_else(|| {
                Error::from(Fault::not_found(format!(
                    "Action {} not found",
                    request.escape_debug()
                )))
            })
        })
        .await?;
    let mut shown = view(&operation, version);
    shown["events"] = events.iter().map(|e| event(e, &context, version)).collect::<Vec<_>>().into();
    Ok(Json(json!({"instanceAction": shown})))
}
