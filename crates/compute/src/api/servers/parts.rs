//! What hangs on a server and is empty here, as there are no volumes, no shares and no console proxy:
//! each list is there, and each member of it is not.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use kilonova_access::Caller;
use kilonova_wire::query::Query;
use kilonova_wire::{Fault, JsonBody, Microversion};
use serde_json::{Value, json};

use super::find::find;
use crate::Compute;
use crate::api::input;
use crate::microversions;

/// 404 for a server that the caller may not see.
async fn exists(compute: &Compute, caller: Caller, id: String) -> Result<(), Fault> {
    compute.store.read(move |tx| find(tx, &caller, &id)).await?;
    Ok(())
}

fn no_query(query: &Query, version: Microversion) -> Result<(), Fault> {
    if version >= microversions::STRICT_QUERIES { input::only(query, &[]) } else { Ok(()) }
}

type Shown = Result<Json<Value>, Fault>;

pub(super) async fn topology(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Shown {
    input::within(version, microversions::since(microversions::TOPOLOGY))?;
    no_query(&query, version)?;
    exists(&compute, caller, id).await?;
    Ok(Json(json!({"nodes": [], "pagesize_kb": null})))
}

pub(super) async fn volumes(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Shown {
    if version >= microversions::STRICT_REQUESTS {
        input::only(&query, &["limit", "offset"])?;
    }
    exists(&compute, caller, id).await?;
    Ok(Json(json!({"volumeAttachments": []})))
}

pub(super) async fn add_volume(
    State(compute): State<Compute>,
    caller: Caller,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Shown {
    exists(&compute, caller, id).await?;
    match body["volumeAttachment"]["volumeId"].as_str() {
        Some(volume) => Err(no_volume(volume)),
        None => Err(Fault::bad_request(
            "Invalid input for field/attribute volumeAttachment. 'volumeId' is a required property",
        )),
    }
}

pub(super) async fn volume(
    State(compute): State<Compute>,
    caller: Caller,
    Path((id, volume)): Path<(String, String)>,
) -> Shown {
    exists(&compute, caller, id).await?;
    Err(no_volume(&volume))
}

fn no_volume(volume: &str) -> Fault {
    Fault::not_found(format!(
        "Volume {} could not be found: this cloud has no volumes.",
        volume.escape_debug()
    ))
}

pub(super) async fn password(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Shown {
    no_query(&query, version)?;
    exists(&compute, caller, id).await?;
    Ok(Json(json!({"password": ""})))
}

pub(super) async fn forget_password(
    State(compute): State<Compute>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<StatusCode, Fault> {
    exists(&compute, caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn console(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Shown {
    input::within(version, microversions::since(microversions::REMOTE_CONSOLES))?;
    exists(&compute, caller, id).await?;
    let kind = body["remote_console"]["type"].as_str();
    let kind = kind.ok_or_else(|| {
        Fault::bad_request(
            "Invalid input for field/attribute remote_console. 'type' is a required property",
        )
    })?;
    Err(Fault::bad_request(format!("Unavailable console type {}.", kind.escape_debug())))
}
