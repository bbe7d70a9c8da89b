//! `/v2/attributes`: resource class and traits of deployables. Read only: upstream lets an admin
//! add some, and its next report takes them away again.

use axum::extract::State as Extract;
use axum::routing::get;
use axum::{Json, Router};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Context, Fault, time};
use serde_json::{Value, json};

use super::request::{Segment, check, invalid, uuid};
use super::{State, access};
use crate::Error;
use crate::db::attributes::{self, AttributeRow};

pub(super) fn routes() -> Router<State> {
    Router::new().route("/v2/attributes", get(list)).route("/v2/attributes/{uuid}", get(show))
}

async fn list(
    Extract(state): Extract<State>,
    context: Context,
    base: Base,
    query: Query,
) -> Result<Json<Value>, Fault> {
    access::manager(&context, "attribute:get_all")?;
    check(&query, &["deployable_id", "key"])?;
    let deployable = query.get("deployable_id").map(number).transpose()?;
    let key = query.get("key").map(str::to_owned);
    let rows = state
        .store
        .read(move |tx| attributes::list(tx, deployable, key.clone()).map_err(Error::from))
        .await?;
    let shown: Vec<Value> = rows.iter().map(|row| view(row, &base)).collect();
    Ok(Json(json!({"attributes": shown})))
}

fn number(text: &str) -> Result<i64, Fault> {
    text.parse().map_err(|_| invalid("deployable_id", text, "unable to convert to integer."))
}

async fn show(
    Extract(state): Extract<State>,
    context: Context,
    base: Base,
    Segment(text): Segment,
) -> Result<Json<Value>, Fault> {
    access::manager(&context, "attribute:get_one")?;
    let uuid: uuid::Uuid = uuid("uuid", &text)?;
    let row =
        state.store.read(move |tx| attributes::by_uuid(tx, uuid).map_err(Error::from)).await?;
    let row = row.ok_or_else(|| Error::not_found("Attribute", "uuid", uuid))?;
    Ok(Json(view(&row, &base)))
}

fn view(row: &AttributeRow, Base(base): &Base) -> Value {
    json!({
        "uuid": row.uuid,
        "deployable_id": row.deployable_id,
        "key": row.name,
        "value": row.value,
        "links": [{"rel": "self", "href": format!("{base}/v2/attributes/{}", row.uuid)}],
        "created_at": time::offset(row.created_at),
        "updated_at": row.updated_at.map(time::offset),
    })
}
