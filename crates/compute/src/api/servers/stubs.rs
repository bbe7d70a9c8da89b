//! Sub-resources of a server that are always empty here.

use axum::Json;
use axum::extract::{Path, State};
use kilonova_access::Caller;
use kilonova_compute_app::{Compute, microversions};
use kilonova_wire::query::Query;
use kilonova_wire::{Microversion, Refusal};
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
