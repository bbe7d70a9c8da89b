//! `/v2/kilonova/device_orders`, an extension for administrators: orders to hosts about devices,
//! their results and the last output of the tool. Newest first, paged by `limit` and `marker`.

use axum::Json;
use axum::extract::State as Extract;
use kilonova_access::{Routes, get};
use kilonova_ids::HostName;
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Refusal, time};
use serde_json::{Value, json};

use super::changes::number;
use super::request::{check, next_page, word};
use super::{State, collection};
use crate::Error;
use crate::db::orders::{self, OrderFilter, OrderRow};
use crate::states::OrderState;

const MAX_LIMIT: i64 = 1000;

pub(super) fn routes() -> Routes<State> {
    collection("/kilonova/device_orders", [get("kilonova:device_orders:get_all", list)])
}

async fn list(
    Extract(state): Extract<State>,
    Base(base): Base,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    check(&query, &["hostname", "state", "limit", "marker"])?;
    let filter = OrderFilter {
        host: query.get("hostname").map(HostName::verbatim),
        state: word(&query, "state", OrderState::parse, OrderState::ALL)?,
        before: number(&query, "marker")?,
    };
    let limit = number(&query, "limit")?.unwrap_or(MAX_LIMIT).min(MAX_LIMIT);
    let rows =
        state.store.read(move |tx| orders::list(tx, &filter, limit).map_err(Error::from)).await?;
    let mut body = json!({"device_orders": rows.iter().map(view).collect::<Vec<_>>()});
    if let Some(last) = rows.last().filter(|_| rows.len() as i64 == limit) {
        body["links"] = next_page(&base, "device_orders", &query, limit, last.id);
    }
    Ok(Json(body))
}

fn view(row: &OrderRow) -> Value {
    json!({
        "id": row.id,
        "uuid": row.uuid,
        "task": row.task,
        "state": row.state,
        "message": row.message,
        "output": row.output,
        "hostname": row.host,
        "address": row.address,
        "device_uuid": row.device,
        "deployable_uuid": row.deployable,
        "attach_handle_uuid": row.handle,
        "instance_uuid": row.server,
        "image_uuid": row.image,
        "user_id": row.user_id,
        "request_id": row.request_id,
        "created_at": time::offset(row.created_at),
        "updated_at": row.updated_at.map(time::offset),
    })
}
