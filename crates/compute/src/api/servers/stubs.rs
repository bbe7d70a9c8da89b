//! Sub-resources of a server that are always empty here, because there are no volumes: lists are empty,
//! and members do not exist.

use axum::Json;
use axum::extract::{Path, State};
use kilonova_access::Caller;
use kilonova_compute_app::{Compute, microversions};
use kilonova_wire::query::Query;
use kilonova_wire::{JsonBody, Microversion, Refusal};
use serde_json::{Value, json};

use super::find::find;
use crate::api::input;

/// Refuses a server that does not exist for the caller.
///
/// # Errors
/// 404 and 403.
async fn check_exists(compute: &Compute, caller: Caller, id: String) -> Result<(), Refusal> {
    compute.store.read(move |tx| find(tx, &caller, &id)).await?;
    Ok(())
}

pub(super) fn no_query(query: &Query, version: Microversion) -> Result<(), Refusal> {
    if version >= microversions::STRICT_QUERIES {
        input::check_query_keys(query, &[])
    } else {
        Ok(())
    }
}

type JsonAnswer = Result<Json<Value>, Refusal>;

pub(super) async fn topology(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> JsonAnswer {
    input::check_microversion(version, microversions::since(microversions::TOPOLOGY))?;
    no_query(&query, version)?;
    check_exists(&compute, caller, id).await?;
    Ok(Json(json!({"nodes": [], "pagesize_kb": null})))
}

pub(super) async fn volumes(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> JsonAnswer {
    if version >= microversions::STRICT_REQUESTS {
        input::check_query_keys(&query, &["limit", "offset"])?;
    }
    check_exists(&compute, caller, id).await?;
    Ok(Json(json!({"volumeAttachments": []})))
}

pub(super) async fn add_volume(
    State(compute): State<Compute>,
    caller: Caller,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> JsonAnswer {
    check_exists(&compute, caller, id).await?;
    match body["volumeAttachment"]["volumeId"].as_str() {
        Some(volume) => Err(no_volume(volume)),
        None => Err(Refusal::bad_request(
            "Invalid input for field/attribute volumeAttachment. 'volumeId' is a required property",
        )),
    }
}

pub(super) async fn volume(
    State(compute): State<Compute>,
    caller: Caller,
    Path((id, volume)): Path<(String, String)>,
) -> JsonAnswer {
    check_exists(&compute, caller, id).await?;
    Err(no_volume(&volume))
}

fn no_volume(volume: &str) -> Refusal {
    Refusal::not_found(format!(
        "Volume {} could not be found: this cloud has no volumes.",
        volume.escape_debug()
    ))
}
