//! `/servers/{id}/shares`: the shares of Manila that a server has attached. No host can attach one, so
//! a server never has any (`nova/api/openstack/compute/server_shares.py`).

use axum::Json;
use axum::extract::{Path, State};
use kilonova_access::Caller;
use kilonova_compute_app::{Compute, microversions};
use kilonova_wire::query::Query;
use kilonova_wire::{JsonBody, Microversion, Refusal};
use serde_json::{Value, json};

use super::find::find;
use crate::api::input::{self, body_schemas};

body_schemas!(ATTACH, attach_schema, the_schemas_of_a_new_share_compile);

fn attach_schema(_: Microversion) -> Value {
    json!({
        "type": "object",
        "properties": {"share": {
            "type": "object",
            "properties": {
                "share_id": {"type": "string", "format": "uuid"},
                "tag": {
                    "type": "string", "minLength": 1, "maxLength": 255,
                    "pattern": "^[a-zA-Z0-9-]*$",
                },
            },
            "required": ["share_id"],
            "additionalProperties": false,
        }},
        "required": ["share"],
        "additionalProperties": false,
    })
}

/// Checks the microversion, and that the caller may see the server.
async fn check(
    compute: &Compute,
    caller: Caller,
    version: Microversion,
    id: String,
) -> Result<(), Refusal> {
    input::check_microversion(version, microversions::since(microversions::SHARES))?;
    compute.store.read(move |tx| find(tx, &caller, &id)).await?;
    Ok(())
}

pub(super) async fn list(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    check(&compute, caller, version, id).await?;
    input::check_query_keys(&query, &[])?;
    Ok(Json(json!({"shares": []})))
}

/// Refused as upstream does on a host that cannot attach shares.
pub(super) async fn attach(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    input::check_microversion(version, microversions::since(microversions::SHARES))?;
    ATTACH.check(version, &body)?;
    check(&compute, caller, version, id).await?;
    Err(Refusal::conflict(
        "Feature not supported because either compute or instance are not configured correctly.",
    ))
}

/// One share, to show or to detach it.
pub(super) async fn missing(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    Path((id, share)): Path<(String, String)>,
) -> Result<Json<Value>, Refusal> {
    check(&compute, caller, version, id).await?;
    let share = share.escape_debug();
    Err(Refusal::not_found(format!("Share {share} could not be found.")))
}
