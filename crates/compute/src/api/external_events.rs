//! `/os-server-external-events`: what Neutron, Cinder and Cyborg tell Nova. Nothing here waits for
//! them: devices are bound in the transaction of the boot, and there are no ports and no volumes. So
//! an event is checked, answered as upstream answers it, and noted in the log.

use std::sync::LazyLock;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use kilonova_access::{Routes, post};
use kilonova_ids::ServerId;
use kilonova_store::Tx;
use kilonova_wire::schema::Schema;
use kilonova_wire::{Fault, JsonBody, Microversion};
use serde_json::{Value, json};

use crate::db::servers;
use crate::{Compute, Error};

/// Events with the minor version that brought each.
const EVENTS: &[(&str, u32)] = &[
    ("network-changed", 1),
    ("network-vif-plugged", 1),
    ("network-vif-unplugged", 1),
    ("network-vif-deleted", 1),
    ("volume-extended", 51),
    ("power-update", 76),
    ("accelerator-request-bound", 82),
    ("volume-reimaged", 93),
];
/// Events that mean nothing without a tag.
const TAGGED: &[&str] =
    &["accelerator-request-bound", "power-update", "volume-extended", "volume-reimaged"];
static SCHEMAS: LazyLock<Vec<(u32, Schema)>> =
    LazyLock::new(|| [1, 51, 76, 82, 93].map(|minor| (minor, schema(minor))).into());

fn schema(minor: u32) -> Schema {
    let names: Vec<&str> =
        EVENTS.iter().filter(|(_, first)| *first <= minor).map(|(name, _)| *name).collect();
    Schema::new(&json!({
        "type": "object",
        "properties": {"events": {
            "type": "array", "minItems": 1, "items": {
                "type": "object",
                "properties": {
                    "server_uuid": {"type": "string", "format": "uuid"},
                    "name": {"type": "string", "enum": names},
                    "status": {"type": "string", "enum": ["failed", "completed", "in-progress"]},
                    "tag": {"type": "string", "maxLength": 255},
                },
                "required": ["server_uuid", "name"],
                "additionalProperties": false,
            },
        }},
        "required": ["events"],
        "additionalProperties": false,
    }))
}

pub(super) fn routes() -> Routes<Compute> {
    Routes::new().route(
        "/v2.1/os-server-external-events",
        [post("os_compute_api:os-server-external-events:create", create)],
    )
}

async fn create(
    State(compute): State<Compute>,
    version: Microversion,
    JsonBody(body): JsonBody,
) -> Result<Response, Fault> {
    let of_version = SCHEMAS.iter().rev().find(|(first, _)| *first <= version.1);
    if let Some((_, schema)) = of_version {
        schema.check(&body)?;
    }
    let events = body["events"].as_array().cloned().unwrap_or_default();
    let answers = compute
        .store
        .read(move |tx| events.iter().map(|event| judged(tx, event)).collect::<Result<_, Error>>())
        .await?;
    let answers: Vec<Value> = answers;
    let all_taken = answers.iter().all(|answer| answer["code"] == 200);
    let status = if all_taken { StatusCode::OK } else { StatusCode::MULTI_STATUS };
    Ok((status, Json(json!({"events": answers}))).into_response())
}

fn judged(tx: &mut Tx<'_>, event: &Value) -> Result<Value, Error> {
    let name = event["name"].as_str().unwrap_or_default();
    let id = event["server_uuid"].as_str().and_then(kilonova_ids::parse_uuid_like::<ServerId>);
    let server = id.map(|id| servers::find(tx, id)).transpose()?.flatten();
    let code = match server {
        None => 404,
        Some(_) if TAGGED.contains(&name) && event.get("tag").is_none() => 400,
        Some(server) if server.host.is_none() => 422,
        Some(_) => 200,
    };
    tracing::info!(event = name, server = %event["server_uuid"], code, "told of an event");
    let mut answer = event.clone();
    answer["code"] = json!(code);
    if code != 200 {
        answer["status"] = json!("failed");
    } else if event.get("status").is_none() {
        answer["status"] = json!("completed");
    }
    Ok(answer)
}
