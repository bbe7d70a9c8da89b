//! `/v2/attributes`: the resource class and traits that hosts report for deployables, and
//! attributes that administrators add. Upstream removes the latter with the host's next report;
//! here they stay.

use axum::Json;
use axum::extract::State as Extract;
use http::StatusCode;
use kilonova_access::{Routes, get, post};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Body, Refusal, time};
use serde_json::{Value, json};

use super::request::{Segment, check, given, invalid, json as json_of, uuid};
use super::{State, collection};
use crate::Error;
use crate::app::attributes as changes;
use crate::app::grammar::shown;
use crate::db::attributes::{self, AttributeRow};

pub(super) fn routes() -> Routes<State> {
    collection(
        "/attributes",
        [get("cyborg:attribute:get_all", list), post("cyborg:attribute:create", create)],
    )
    .route(
        "/attributes/{uuid}",
        [
            get("cyborg:attribute:get_one", show),
            kilonova_access::delete("cyborg:attribute:delete", delete),
        ],
    )
}

async fn list(
    Extract(state): Extract<State>,
    base: Base,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    check(&query, &["deployable_id", "key"])?;
    let deployable = query.get("deployable_id").map(number).transpose()?;
    let key = given(&query, "key").map(str::to_owned);
    let rows = state
        .store
        .read(move |tx| attributes::list(tx, deployable, key.clone()).map_err(Error::from))
        .await?;
    let shown: Vec<Value> = rows.iter().map(|row| view(row, &base)).collect();
    Ok(Json(json!({"attributes": shown})))
}

fn number(text: &str) -> Result<i64, Refusal> {
    text.parse().map_err(|_| {
        let why = format!(
            "unable to convert to integer. Error: invalid literal for int() with base 10: '{}'",
            shown(text)
        );
        invalid("deployable_id", text, &why)
    })
}

async fn show(
    Extract(state): Extract<State>,
    base: Base,
    Segment(text): Segment,
) -> Result<Json<Value>, Refusal> {
    let uuid: uuid::Uuid = uuid("uuid", &text)?;
    let row =
        state.store.read(move |tx| attributes::by_uuid(tx, uuid).map_err(Error::from)).await?;
    let row = row.ok_or_else(|| Error::not_found("Attribute", "uuid", uuid))?;
    Ok(Json(view(&row, &base)))
}

async fn create(
    Extract(state): Extract<State>,
    base: Base,
    body: Body,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let draft = changes::draft(&json_of(&body, "attr")?)?;
    let row = state.store.write(move |tx| changes::create(tx, &draft)).await?;
    Ok((StatusCode::CREATED, Json(view(&row, &base))))
}

async fn delete(
    Extract(state): Extract<State>,
    Segment(text): Segment,
) -> Result<StatusCode, Refusal> {
    let uuid: uuid::Uuid = uuid("uuid", &text)?;
    state.store.write(move |tx| changes::delete(tx, uuid)).await?;
    Ok(StatusCode::NO_CONTENT)
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
