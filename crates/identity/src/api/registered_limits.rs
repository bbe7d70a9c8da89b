//! Registered limits: the default limit of each resource of each service.

use std::sync::LazyLock;

use axum::extract::{Path, State};
use axum::http::Uri;
use kilonova_access::{Routes, delete, get, patch, post};
use kilonova_wire::query::Query;
use kilonova_wire::schema::Schema;
use kilonova_wire::{Base, JsonBody, Refusal};
use serde_json::{Map, Value, json};

use super::{Answer, created, fits, id_of, listing, no_content, ok, self_link};
use crate::Identity;
use crate::app::limits::{NewRegisteredLimit, RegisteredLimitChange};
use crate::db::limits::RegisteredLimit;

pub(super) fn routes() -> Routes<Identity> {
    Routes::new()
        .route(
            "/v3/registered_limits",
            [
                get("identity:list_registered_limits", list),
                post("identity:create_registered_limits", create),
            ],
        )
        .route(
            "/v3/registered_limits/{id}",
            [
                get("identity:get_registered_limit", show),
                patch("identity:update_registered_limit", update),
                delete("identity:delete_registered_limit", remove),
            ],
        )
}

pub(super) fn integer_schema() -> Value {
    json!({"type": "integer", "minimum": -1, "maximum": i32::MAX})
}

pub(super) fn name_schema() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"[\S]+"})
}

pub(super) fn region_schema() -> Value {
    json!({"type": ["string", "null"], "minLength": 1, "maxLength": 255})
}

fn attributes() -> Value {
    json!({
        "service_id": {"type": "string", "maxLength": 255},
        "region_id": region_schema(),
        "resource_name": name_schema(),
        "default_limit": integer_schema(),
        "description": {"type": ["string", "null"], "maxLength": 255},
    })
}

static CREATE: LazyLock<Schema> = LazyLock::new(|| {
    Schema::new(&json!({
        "type": "object",
        "required": ["registered_limits"],
        "additionalProperties": false,
        "properties": {"registered_limits": {"type": "array", "minItems": 1, "items": {
            "type": "object",
            "required": ["service_id", "resource_name", "default_limit"],
            "additionalProperties": false,
            "properties": attributes(),
        }}},
    }))
});

static UPDATE: LazyLock<Schema> = LazyLock::new(|| {
    Schema::new(&json!({
        "type": "object",
        "required": ["registered_limit"],
        "additionalProperties": false,
        "properties": {"registered_limit": {
            "type": "object",
            "additionalProperties": false,
            "properties": attributes(),
        }},
    }))
});

/// Checks a body against its schema. A database cannot store NUL characters.
pub(super) fn check(schema: &Schema, body: &Value) -> Result<(), Refusal> {
    schema.check(body)?;
    match has_nul(body) {
        true => Err(Refusal::bad_request("The request body contains a NUL character.")),
        false => Ok(()),
    }
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(fields) => fields.values().any(has_nul),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// A text; `None` if it is missing or null.
pub(super) fn string(fields: &Value, key: &str) -> Option<String> {
    fields[key].as_str().map(str::to_owned)
}

/// A number; `None` if it is missing. A whole number such as `1.0` is an integer for the schema.
#[expect(clippy::cast_possible_truncation, reason = "the schema limits it to 32 bits")]
pub(super) fn integer(fields: &Value, key: &str) -> Option<i64> {
    let value = &fields[key];
    value.as_i64().or_else(|| value.as_f64().map(|number| number as i64))
}

/// A text that null removes; `None` if it is missing.
pub(super) fn clearable(fields: &Value, key: &str) -> Option<Option<String>> {
    let has = fields.as_object().is_some_and(|fields: &Map<_, _>| fields.contains_key(key));
    has.then(|| string(fields, key))
}

fn view(limit: &RegisteredLimit, base: &Base) -> Value {
    json!({
        "id": limit.id,
        "service_id": limit.service,
        "region_id": limit.region,
        "resource_name": limit.resource,
        "default_limit": limit.default_limit,
        "description": limit.description,
        "links": self_link(base, "registered_limits", &limit.id),
    })
}

async fn list(State(identity): State<Identity>, base: Base, uri: Uri, query: Query) -> Answer {
    let found = identity.registered_limits().await?;
    let fits = |view: &Value| fits(&query, &["service_id", "region_id", "resource_name"], view);
    let items = found.iter().map(|limit| view(limit, &base)).filter(fits).collect();
    listing(&base, &uri, "registered_limits", items)
}

async fn show(State(identity): State<Identity>, base: Base, Path(id): Path<String>) -> Answer {
    id_of("registered limit", &id)?;
    ok(json!({"registered_limit": view(&identity.registered_limit(&id).await?, &base)}))
}

async fn create(State(identity): State<Identity>, base: Base, body: JsonBody) -> Answer {
    check(&CREATE, &body.0)?;
    let all = body.0["registered_limits"].as_array().into_iter().flatten();
    let new = all.map(|fields| NewRegisteredLimit {
        service: string(fields, "service_id").unwrap_or_default(),
        region: string(fields, "region_id"),
        resource: string(fields, "resource_name").unwrap_or_default(),
        default_limit: integer(fields, "default_limit").unwrap_or_default(),
        description: string(fields, "description"),
    });
    let made = identity.create_registered_limits(new.collect()).await?;
    let made: Vec<Value> = made.iter().map(|limit| view(limit, &base)).collect();
    created(json!({"registered_limits": made}))
}

async fn update(
    State(identity): State<Identity>,
    base: Base,
    Path(id): Path<String>,
    body: JsonBody,
) -> Answer {
    id_of("registered limit", &id)?;
    check(&UPDATE, &body.0)?;
    let fields = &body.0["registered_limit"];
    let change = RegisteredLimitChange {
        service: string(fields, "service_id"),
        region: clearable(fields, "region_id"),
        resource: string(fields, "resource_name"),
        default_limit: integer(fields, "default_limit"),
        description: clearable(fields, "description"),
    };
    let changed = identity.update_registered_limit(&id, change).await?;
    ok(json!({"registered_limit": view(&changed, &base)}))
}

async fn remove(State(identity): State<Identity>, Path(id): Path<String>) -> Answer {
    id_of("registered limit", &id)?;
    identity.delete_registered_limit(&id).await?;
    no_content()
}
