//! `/v2/kilonova/device_health`, an extension for administrators: unhealthy devices, the reason and
//! time, and the servers that use them. A single device is shown regardless of its health.

use axum::Json;
use axum::extract::State as Extract;
use kilonova_access::{Routes, get};
use kilonova_ids::{DeviceId, HostName, parse_uuid_like};
use kilonova_wire::query::Query;
use kilonova_wire::{Refusal, time};
use serde_json::{Value, json};

use super::request::{Segment, check, word};
use super::{State, collection};
use crate::Error;
use crate::app::grammar::shown;
use crate::ledger::{self, CheckedDevice, HealthFilter};
use crate::states::HealthState;

pub(super) fn routes() -> Routes<State> {
    collection("/kilonova/device_health", [get("kilonova:device_health:get_all", list)])
        .route("/kilonova/device_health/{uuid}", [get("kilonova:device_health:get_one", show)])
}

async fn list(Extract(state): Extract<State>, query: Query) -> Result<Json<Value>, Refusal> {
    check(&query, &["hostname", "health"])?;
    let health = word(&query, "health", HealthState::parse, HealthState::ALL)?;
    let filter =
        HealthFilter { device: None, host: query.get("hostname").map(HostName::verbatim), health };
    let all = state.store.read(move |tx| ledger::health(tx, &filter)).await?;
    Ok(Json(json!({"devices": all.iter().map(view).collect::<Vec<_>>()})))
}

async fn show(
    Extract(state): Extract<State>,
    Segment(text): Segment,
) -> Result<Json<Value>, Refusal> {
    let absent = || Error::not_found("Device", "uuid", shown(&text));
    let uuid: DeviceId = parse_uuid_like(&text).ok_or_else(absent)?;
    let filter = HealthFilter { device: Some(uuid), ..HealthFilter::default() };
    let found = state.store.read(move |tx| ledger::health(tx, &filter)).await?;
    let device = found.first().ok_or_else(absent)?;
    Ok(Json(view(device)))
}

fn view(checked: &CheckedDevice) -> Value {
    json!({
        "uuid": checked.device,
        "hostname": checked.host,
        "address": checked.address,
        "type": checked.kind,
        "status": checked.status,
        "health": checked.health,
        "reason": checked.reason,
        "since": checked.since.map(time::offset),
        "servers": checked.servers,
    })
}
