//! `/v2/devices`: the physical cards, for managers and administrators. Hosts report them;
//! administrators enable and disable them.

use axum::Json;
use axum::extract::State as Extract;
use http::StatusCode;
use kilonova_access::{Routes, get, post};
use kilonova_ids::{DeviceId, HostName, parse_uuid_like};
use kilonova_node_api::DeviceKind;
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Microversion, Refusal, time};
use serde_json::{Value, json};

use super::request::{Segment, check, given};
use super::{State, collection, negotiation};
use crate::Error;
use crate::app::devices::set_enabled;
use crate::app::grammar::shown;
use crate::db::devices::{self, DeviceFilter, DeviceRow};

pub(super) fn routes() -> Routes<State> {
    collection("/devices", [get("cyborg:device:get_all", list)])
        .route("/devices/{uuid}", [get("cyborg:device:get_one", show)])
        .route("/devices/{uuid}/enable", [post("cyborg:device:enable", enable)])
        .route("/devices/{uuid}/disable", [post("cyborg:device:disable", disable)])
}

async fn list(
    Extract(state): Extract<State>,
    version: Microversion,
    base: Base,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    check(&query, &["type", "vendor", "hostname"])?;
    let kind = match given(&query, "type").map(DeviceKind::parse) {
        // No device has an unknown type.
        Some(None) => return Ok(Json(json!({"devices": []}))),
        Some(kind) => kind,
        None => None,
    };
    let vendor = given(&query, "vendor").map(str::to_owned);
    let host = given(&query, "hostname").map(HostName::verbatim);
    let filter = DeviceFilter { kind, vendor, host };
    let rows = state.store.read(move |tx| devices::list(tx, &filter).map_err(Error::from)).await?;
    let shown: Vec<Value> = rows.iter().map(|row| view(row, &base, version)).collect();
    Ok(Json(json!({"devices": shown})))
}

async fn show(
    Extract(state): Extract<State>,
    version: Microversion,
    base: Base,
    Segment(text): Segment,
) -> Result<Json<Value>, Refusal> {
    let absent = || Error::not_found("Device", "uuid", shown(&text));
    let uuid: DeviceId = parse_uuid_like(&text).ok_or_else(absent)?;
    let row = state.store.read(move |tx| devices::by_uuid(tx, uuid).map_err(Error::from)).await?;
    let row = row.ok_or_else(absent)?;
    Ok(Json(view(&row, &base, version)))
}

async fn enable(
    Extract(state): Extract<State>,
    Segment(text): Segment,
) -> Result<StatusCode, Refusal> {
    change(&state, &text, true).await
}

async fn disable(
    Extract(state): Extract<State>,
    Segment(text): Segment,
) -> Result<StatusCode, Refusal> {
    change(&state, &text, false).await
}

async fn change(state: &State, text: &str, enabled: bool) -> Result<StatusCode, Refusal> {
    let uuid: DeviceId =
        parse_uuid_like(text).ok_or_else(|| Error::not_found("Device", "uuid", shown(text)))?;
    let world = state.world.clone();
    state.store.write(move |tx| set_enabled(tx, &world, uuid, enabled)).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn view(row: &DeviceRow, base: &Base, version: Microversion) -> Value {
    let board = json!({
        "address": row.address,
        "numa_node": row.numa_node,
        "product_id": row.product_id,
        "vendor_id": row.vendor_id,
    });
    let mut view = json!({
        "uuid": row.uuid,
        "type": row.kind,
        "vendor": row.vendor_id,
        "model": row.model,
        "std_board_info": board.to_string(),
        "vendor_board_info": "{}",
        "hostname": row.host,
        "links": [{"rel": "self", "href": format!("{}/v2/devices/{}", base.0, row.uuid)}],
        "created_at": time::offset(row.created_at),
        "updated_at": row.updated_at.map(time::offset),
    });
    if version >= negotiation::DEVICE_STATUS {
        view["status"] = row.status.as_str().into();
    }
    view
}
