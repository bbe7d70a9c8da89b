//! `/servers/{id}/os-server-password`: the password that a guest has set through the metadata service.
//!
//! The guest encrypts it with the public key of the server's key pair; this service never sees the plaintext.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use kilonova_access::Caller;
use kilonova_compute_app::{Compute, Error};
use kilonova_compute_db::guest_metadata as rows;
use kilonova_wire::query::Query;
use kilonova_wire::{Microversion, Refusal};
use serde_json::{Value, json};

use super::find::find;
use crate::api::input;

pub(super) async fn show(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    input::check_no_query(&query, version)?;
    let read = compute.store.read(move |tx| {
        let server = find(tx, &caller, &id)?;
        Ok::<_, Error>(rows::password(tx, server.id)?)
    });
    Ok(Json(json!({"password": read.await?.unwrap_or_default()})))
}

/// Removes the stored password. The password inside the guest does not change.
pub(super) async fn clear(
    State(compute): State<Compute>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    let clear = compute.store.write(move |tx| {
        let server = find(tx, &caller, &id)?;
        Ok::<_, Error>(rows::clear_password(tx, server.id)?)
    });
    clear.await?;
    Ok(StatusCode::NO_CONTENT)
}
