//! `/v2/kilonova/handle_changes`, an extension: which server got and released which device, for
//! administrators. Newest first, paged by `limit` and `marker`.

use axum::Json;
use axum::extract::State as Extract;
use kilonova_access::{Routes, get};
use kilonova_ids::HostName;
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Refusal, time};
use serde_json::{Value, json};

use super::request::{check, invalid, next_page, uuid};
use super::{State, collection};
use crate::Error;
use crate::db::changes::{self, ChangeFilter, ChangeRow};

const MAX_LIMIT: i64 = 1000;

pub(super) fn routes() -> Routes<State> {
    collection("/kilonova/handle_changes", [get("kilonova:handle_changes:get_all", list)])
}

pub(super) fn number(query: &Query, field: &str) -> Result<Option<i64>, Refusal> {
    let read = |text: &str| match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(invalid(field, text, "It must be a positive number.")),
    };
    query.get(field).map(read).transpose()
}

async fn list(
    Extract(state): Extract<State>,
    Base(base): Base,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    check(&query, &["instance", "attach_handle", "hostname", "limit", "marker"])?;
    let filter = ChangeFilter {
        server: query.get("instance").map(|text| uuid("instance", text)).transpose()?,
        handle: query.get("attach_handle").map(|text| uuid("attach_handle", text)).transpose()?,
        host: query.get("hostname").map(HostName::verbatim),
        before: number(&query, "marker")?,
    };
    let limit = number(&query, "limit")?.unwrap_or(MAX_LIMIT).min(MAX_LIMIT);
    let rows =
        state.store.read(move |tx| changes::list(tx, &filter, limit).map_err(Error::from)).await?;
    let mut body = json!({"handle_changes": rows.iter().map(view).collect::<Vec<_>>()});
    if let Some(last) = rows.last().filter(|_| rows.len() as i64 == limit) {
        body["links"] = next_page(&base, "handle_changes", &query, limit, last.id);
    }
    Ok(Json(body))
}

fn view(row: &ChangeRow) -> Value {
    json!({
        "id": row.id,
        "at": time::offset(row.at),
        "change": row.change,
        "attach_handle_uuid": row.handle,
        "attach_handle_type": row.attach_type,
        "address": row.address,
        "mdev_type": Some(&row.mdev_type).filter(|text| !text.is_empty()),
        "hostname": row.host,
        "device_rp_uuid": row.provider,
        "arq_uuid": row.arq,
        "instance_uuid": row.server,
        "project_id": row.project_id,
        "user_id": row.user_id,
        "request_id": row.request_id,
    })
}
