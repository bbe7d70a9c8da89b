//! `/v2/device_profiles`: the accelerators that users may request. Administrators create and delete
//! profiles.

use axum::Json;
use axum::extract::State as Extract;
use http::StatusCode;
use jiff::Timestamp;
use kilonova_access::{Routes, get, post};
use kilonova_ids::{DeviceProfileId, parse_uuid_like};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Body, Microversion, Refusal, time};
use serde_json::{Value, json};

use super::request::{Segment, check, json as json_of};
use super::{State, collection, negotiation};
use crate::Error;
use crate::app::{grammar, profiles};
use crate::db::profiles::{self as rows, ProfileRow};

pub(super) fn routes() -> Routes<State> {
    collection(
        "/device_profiles",
        [
            get("cyborg:device_profile:get_all", list),
            post("cyborg:device_profile:create", create),
            kilonova_access::delete("cyborg:device_profile:delete", delete_listed),
        ],
    )
    .route(
        "/device_profiles/{uuid_or_name}",
        [
            get("cyborg:device_profile:get_one", show),
            kilonova_access::delete("cyborg:device_profile:delete", delete_one),
        ],
    )
}

async fn list(
    Extract(state): Extract<State>,
    base: Base,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    check(&query, &["name"])?;
    let rows = state.store.read(|tx| rows::list(tx).map_err(Error::from)).await?;
    let names: Option<Vec<&str>> = query.get("name").map(|names| names.split(',').collect());
    let matches = |row: &&ProfileRow| names.as_ref().is_none_or(|n| n.contains(&row.name.as_str()));
    let shown: Vec<Value> = rows.iter().filter(matches).map(|row| view(row, &base)).collect();
    Ok(Json(json!({"device_profiles": shown})))
}

async fn show(
    Extract(state): Extract<State>,
    version: Microversion,
    base: Base,
    Segment(given): Segment,
) -> Result<Json<Value>, Refusal> {
    if parse_uuid_like::<DeviceProfileId>(&given).is_none() {
        negotiation::at_least(version, negotiation::PROFILE_BY_NAME)?;
    }
    let row = state.store.read(move |tx| profiles::find(tx, &given)).await?;
    let mut shown = view(&row, &base);
    shown["created_at"] = python(row.created_at).into();
    shown["updated_at"] = row.updated_at.map_or_else(|| "None".into(), python).into();
    Ok(Json(json!({"device_profile": shown})))
}

async fn create(
    Extract(state): Extract<State>,
    base: Base,
    body: Body,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let draft = grammar::draft(&json_of(&body, "req_devprof_list")?)?;
    let row = state.store.write(move |tx| profiles::create(tx, &draft)).await?;
    Ok((StatusCode::CREATED, Json(view(&row, &base))))
}

async fn delete_one(
    Extract(state): Extract<State>,
    Segment(given): Segment,
) -> Result<StatusCode, Refusal> {
    delete(&state, vec![given]).await
}

async fn delete_listed(
    Extract(state): Extract<State>,
    query: Query,
) -> Result<StatusCode, Refusal> {
    check(&query, &["value"])?;
    let given: Vec<String> = query
        .all("value")
        .flat_map(|values| values.split(','))
        .filter(|value| !value.is_empty())
        .map(str::to_owned)
        .collect();
    if given.is_empty() {
        return Err(Refusal::bad_request("Missing argument: \"value\""));
    }
    delete(&state, given).await
}

async fn delete(state: &State, mut given: Vec<String>) -> Result<StatusCode, Refusal> {
    given.sort();
    given.dedup();
    state.store.write(move |tx| profiles::delete(tx, &given)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Formats a time in the form that only `show` uses.
fn python(at: Timestamp) -> String {
    time::offset(at).replace('T', " ")
}

fn view(row: &ProfileRow, Base(base): &Base) -> Value {
    json!({
        "uuid": row.uuid,
        "name": row.name,
        "description": row.description,
        "groups": row.groups,
        "links": [{"rel": "self", "href": format!("{base}/v2/device_profiles/{}", row.uuid)}],
        "created_at": time::offset(row.created_at),
        "updated_at": row.updated_at.map(time::offset),
    })
}
