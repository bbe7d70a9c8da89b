//! The projects with access to a private flavor.

use std::sync::LazyLock;

use axum::Json;
use axum::extract::{Path, State};
use kilonova_access::{Caller, Guard};
use kilonova_compute_app::{Compute, flavors as app, microversions};
use kilonova_wire::query::Query;
use kilonova_wire::schema::Schema;
use kilonova_wire::{JsonBody, Microversion, Refusal, time};
use serde_json::{Value, json};

use crate::api::input;

/// The actions that a body may name, and their rules.
pub(super) const ACTIONS: Guard = Guard::Action(&[
    ("addTenantAccess", "os_compute_api:os-flavor-access:add_tenant_access"),
    ("removeTenantAccess", "os_compute_api:os-flavor-access:remove_tenant_access"),
]);

fn schema(action: &str) -> Schema {
    Schema::new(&json!({
        "type": "object",
        "properties": {action: {
            "type": "object",
            "properties": {"tenant": {
                "type": "string", "minLength": 1, "maxLength": 255,
                "pattern": "^[a-zA-Z0-9-]*$",
            }},
            "required": ["tenant"],
            "additionalProperties": false,
        }},
        "required": [action],
        "additionalProperties": false,
    }))
}

static ADD: LazyLock<Schema> = LazyLock::new(|| schema("addTenantAccess"));
static REMOVE: LazyLock<Schema> = LazyLock::new(|| schema("removeTenantAccess"));

fn shown(id: &str, projects: &[String]) -> Json<Value> {
    let access: Vec<Value> =
        projects.iter().map(|project| json!({"flavor_id": id, "tenant_id": project})).collect();
    Json(json!({"flavor_access": access}))
}

pub(super) async fn list(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    input::check_no_query(&query, version)?;
    let name = id.clone();
    let projects = compute.store.read(move |tx| app::access(tx, &caller, &id)).await?;
    Ok(shown(&name, &projects))
}

pub(super) async fn action(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    let action = body.as_object().and_then(|body| body.keys().next()).map(String::as_str);
    if let Some(caller) = action.and_then(|action| caller.with_action(action)) {
        caller.may_route()?;
    }
    let (name, now) = (id.clone(), time::now());
    let tenant = |action: &str| input::text_of(&body[action], "tenant").unwrap_or_default();
    let projects = match action {
        Some(action @ "addTenantAccess") => {
            ADD.check(&body)?;
            let (project, private_only) =
                (tenant(action), version >= microversions::PRIVATE_FLAVOR_ACCESS);
            compute.store.write(move |tx| app::grant(tx, &id, &project, private_only, now)).await?
        }
        Some(action @ "removeTenantAccess") => {
            REMOVE.check(&body)?;
            let project = tenant(action);
            compute.store.write(move |tx| app::revoke(tx, &id, &project, now)).await?
        }
        Some(other) => {
            return Err(Refusal::bad_request(format!("There is no such action: {other}")));
        }
        None => return Err(Refusal::bad_request("Malformed request body")),
    };
    Ok(shown(&name, &projects))
}
