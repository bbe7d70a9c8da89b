//! Limits that override registered ones, and the enforcement model.

use std::sync::LazyLock;

use axum::extract::{Path, State};
use axum::http::Uri;
use kilonova_access::{Caller, Guard, Routes, delete, get, patch, post};
use kilonova_wire::query::Query;
use kilonova_wire::schema::Schema;
use kilonova_wire::{Base, JsonBody};
use serde_json::{Value, json};

use super::registered_limits::{
    check, clearable, integer, integer_schema, name_schema, region_schema, string,
};
use super::{Answer, created, fits, id_of, listing, may, no_content, ok, self_link};
use crate::app::limits::{LimitChange, NewLimit};
use crate::db::limits::Limit;
use crate::{DOMAIN_ID, Error, Identity};

pub(super) fn routes() -> Routes<Identity> {
    Routes::new()
        .route("/v3/limits/model", [get("identity:get_limit_model", model)])
        .route(
            "/v3/limits",
            [get("identity:list_limits", list), post("identity:create_limits", create)],
        )
        .route(
            "/v3/limits/{id}",
            [
                get(Guard::Object(&["identity:get_limit"]), show),
                patch("identity:update_limit", update),
                delete("identity:delete_limit", remove),
            ],
        )
}

static CREATE: LazyLock<Schema> = LazyLock::new(|| {
    let id = json!({"type": ["string", "null"], "minLength": 1, "maxLength": 64, "pattern": "^[a-zA-Z0-9-]+$"});
    Schema::new(&json!({
        "type": "object",
        "required": ["limits"],
        "additionalProperties": false,
        "properties": {"limits": {"type": "array", "minItems": 1, "items": {
            "type": "object",
            "required": ["service_id", "resource_name", "resource_limit"],
            "oneOf": [{"required": ["domain_id"]}, {"required": ["project_id"]}],
            "additionalProperties": false,
            "properties": {
                "project_id": id,
                "domain_id": id,
                "service_id": {"type": "string", "maxLength": 255},
                "region_id": region_schema(),
                "resource_name": name_schema(),
                "resource_limit": integer_schema(),
                "description": {"type": ["string", "null"], "maxLength": 255},
            },
        }}},
    }))
});

static UPDATE: LazyLock<Schema> = LazyLock::new(|| {
    Schema::new(&json!({
        "type": "object",
        "required": ["limit"],
        "additionalProperties": false,
        "properties": {"limit": {
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "resource_limit": integer_schema(),
                "description": {"type": ["string", "null"], "maxLength": 255},
            },
        }},
    }))
});

fn view(limit: &Limit, base: &Base) -> Value {
    json!({
        "id": limit.id,
        "project_id": limit.project,
        "domain_id": limit.project.is_none().then_some(DOMAIN_ID),
        "service_id": limit.service,
        "region_id": limit.region,
        "resource_name": limit.resource,
        "resource_limit": limit.resource_limit,
        "description": limit.description,
        "links": self_link(base, "limits", &limit.id),
    })
}

async fn model() -> Answer {
    ok(json!({"model": {
        "name": "flat",
        "description": "Limit enforcement and validation does not take project hierarchy into consideration.",
    }}))
}

/// Administrators, services and auditors of the system or the domain see all limits; other callers see
/// those of their project.
async fn list(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    uri: Uri,
    query: Query,
) -> Answer {
    let sees_all = caller.system || caller.is_admin() || caller.has_role("service");
    let found = match (sees_all || !caller.domain_id.is_empty(), caller.project_id.as_str()) {
        (true, _) => identity.limits(None).await?,
        (false, "") => Vec::new(),
        (false, project) => identity.limits(Some(project.to_owned())).await?,
    };
    let fits = |view: &Value| {
        fits(&query, &["service_id", "region_id", "resource_name", "project_id", "domain_id"], view)
    };
    let items = found.iter().map(|limit| view(limit, &base)).filter(fits).collect();
    listing(&base, &uri, "limits", items)
}

async fn show(
    State(identity): State<Identity>,
    caller: Caller,
    base: Base,
    Path(id): Path<String>,
) -> Answer {
    id_of("limit", &id)?;
    let found = match identity.limit(&id).await {
        Ok(found) => Some(found),
        Err(Error::NoLimit(..)) => None,
        Err(error) => return Err(error.into()),
    };
    let target = match &found {
        None => Vec::new(),
        Some(Limit { project: Some(project), .. }) => vec![
            ("target.limit.project_id", project.as_str()),
            ("target.limit.project.domain_id", DOMAIN_ID),
        ],
        Some(_) => vec![("target.limit.domain.id", DOMAIN_ID)],
    };
    may(&caller, "identity:get_limit", &target)?;
    let found = found.ok_or(Error::NoLimit("limit", id))?;
    ok(json!({"limit": view(&found, &base)}))
}

async fn create(State(identity): State<Identity>, base: Base, body: JsonBody) -> Answer {
    check(&CREATE, &body.0)?;
    let mut new = Vec::new();
    for fields in body.0["limits"].as_array().into_iter().flatten() {
        // The schema accepts null for either id, as in Keystone, but a limit must have an owner.
        let project = string(fields, "project_id");
        match (&project, string(fields, "domain_id").as_deref()) {
            (Some(_), _) | (None, Some(DOMAIN_ID)) => {}
            (None, Some(_)) => return Err(Error::Missing("domain_id", "limit").into()),
            (None, None) => return Err(Error::Missing("project_id", "limit").into()),
        }
        new.push(NewLimit {
            project,
            service: string(fields, "service_id").unwrap_or_default(),
            region: string(fields, "region_id"),
            resource: string(fields, "resource_name").unwrap_or_default(),
            resource_limit: integer(fields, "resource_limit").unwrap_or_default(),
            description: string(fields, "description"),
        });
    }
    let made = identity.create_limits(new).await?;
    let made: Vec<Value> = made.iter().map(|limit| view(limit, &base)).collect();
    created(json!({"limits": made}))
}

async fn update(
    State(identity): State<Identity>,
    base: Base,
    Path(id): Path<String>,
    body: JsonBody,
) -> Answer {
    id_of("limit", &id)?;
    check(&UPDATE, &body.0)?;
    let fields = &body.0["limit"];
    let change = LimitChange {
        resource_limit: integer(fields, "resource_limit"),
        description: clearable(fields, "description"),
    };
    ok(json!({"limit": view(&identity.update_limit(&id, change).await?, &base)}))
}

async fn remove(State(identity): State<Identity>, Path(id): Path<String>) -> Answer {
    id_of("limit", &id)?;
    identity.delete_limit(&id).await?;
    no_content()
}
