//! `/os-server-external-events`: events that Neutron, Cinder and Cyborg send to Nova.
//!
//! Events are validated and answered as in upstream. Events about ports are applied if the cloud has a
//! Neutron. `volume-extended` extends the disk of a guest. `volume-reimaged` makes waiting
//! rebuilds check their volumes immediately. Other events have no effect.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use kilonova_access::{Routes, post};
use kilonova_compute_app::ports::external::{self, NetworkEvent};
use kilonova_compute_app::{Compute, Error, microversions, volumes};
use kilonova_compute_db::servers;
use kilonova_ids::{ServerId, VolumeId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::{JsonBody, Microversion, Refusal, time};
use serde_json::{Value, json};

use crate::api::input::body_schemas;

/// The events, each with its first microversion.
const EVENTS: &[(&str, Microversion)] = &[
    ("network-changed", microversions::MIN),
    ("network-vif-plugged", microversions::MIN),
    ("network-vif-unplugged", microversions::MIN),
    ("network-vif-deleted", microversions::MIN),
    ("volume-extended", microversions::EVENTS_FOR_OWNERS),
    ("power-update", microversions::POWER_UPDATE_EVENT),
    ("accelerator-request-bound", microversions::ACCELERATOR_EVENT),
    ("volume-reimaged", microversions::VOLUME_REIMAGED_EVENT),
];
/// Events that need a tag.
const TAGGED: &[&str] =
    &["accelerator-request-bound", "power-update", "volume-extended", "volume-reimaged"];

body_schemas!(SCHEMAS, schema, the_schemas_of_external_events_compile);

fn schema(version: Microversion) -> Value {
    let names: Vec<&str> =
        EVENTS.iter().filter(|(_, first)| *first <= version).map(|(name, _)| *name).collect();
    json!({
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
    })
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
) -> Result<Response, Refusal> {
    SCHEMAS.check(version, &body)?;
    let events = body["events"].as_array().cloned().unwrap_or_default();
    let service = compute.clone();
    let answers = compute
        .store
        .read(move |tx| events.iter().map(|event| answer(tx, event)).collect::<Result<_, Error>>())
        .await?;
    let mut answers: Vec<Value> = answers;
    apply(&compute, &answers).await?;
    for event in answers.iter().filter(|event| event["code"] == 200) {
        apply_to_volume(&service, event);
    }
    // The answer shows every accepted event as completed, whatever status it reports.
    for answer in answers.iter_mut().filter(|answer| answer["code"] == 200) {
        answer["status"] = json!("completed");
    }
    let all_accepted = answers.iter().all(|answer| answer["code"] == 200);
    let status = if all_accepted { StatusCode::OK } else { StatusCode::MULTI_STATUS };
    Ok((status, Json(json!({"events": answers}))).into_response())
}

/// Applies an accepted event about a volume: extends the disk of a guest to the size that Cinder reports, or makes
/// the rebuilds that wait for a re-image check their volumes.
fn apply_to_volume(compute: &Compute, event: &Value) {
    let id = |key: &str| event[key].as_str().map(str::to_owned);
    if event["name"] == "volume-reimaged"
        && let Some(volumes) = &compute.volumes
    {
        volumes.look_at_reimaged();
    }
    if event["name"] != "volume-extended" {
        return;
    }
    let server = id("server_uuid").as_deref().and_then(parse_uuid_like::<ServerId>);
    let volume = id("tag").as_deref().and_then(parse_uuid_like::<VolumeId>);
    if let (Some(server), Some(volume)) = (server, volume) {
        volumes::extend_soon(compute, server, volume);
    }
}

/// Applies the accepted events about ports.
async fn apply(compute: &Compute, answers: &[Value]) -> Result<(), Refusal> {
    if compute.neutron.is_none() {
        return Ok(());
    }
    let accepted = answers.iter().filter(|answer| answer["code"] == 200);
    let events: Vec<NetworkEvent> = accepted
        .filter_map(|event| {
            let text = |key: &str| event[key].as_str();
            let server = parse_uuid_like::<ServerId>(text("server_uuid")?)?;
            let status = text("status").unwrap_or_default();
            NetworkEvent::read(server, text("name")?, status, text("tag"))
        })
        .collect();
    if events.is_empty() {
        return Ok(());
    }
    let own = compute.clone();
    let apply = move |tx: &mut Tx<'_>| {
        let now = time::now();
        events.iter().try_for_each(|event| external::observe(tx, &own, event, now))
    };
    Ok(compute.store.write(apply).await?)
}

fn answer(tx: &mut Tx<'_>, event: &Value) -> Result<Value, Error> {
    let name = event["name"].as_str().unwrap_or_default();
    let id = event["server_uuid"].as_str().and_then(parse_uuid_like::<ServerId>);
    let server = id.map(|id| servers::find(tx, id)).transpose()?.flatten();
    let code = match server {
        None => 404,
        Some(_) if TAGGED.contains(&name) && event.get("tag").is_none() => 400,
        Some(server) if server.host.is_none() => 422,
        Some(_) => 200,
    };
    tracing::info!(event = name, server = %event["server_uuid"], code, "external event received");
    let mut answer = event.clone();
    answer["code"] = json!(code);
    if code != 200 {
        answer["status"] = json!("failed");
    } else if event.get("status").is_none() {
        answer["status"] = json!("completed");
    }
    Ok(answer)
}
