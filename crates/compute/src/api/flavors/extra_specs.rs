//! `/flavors/{id}/os-extra_specs`: the extra specs of a flavor.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use kilonova_access::Caller;
use kilonova_compute_app::{Compute, extra_specs, flavors as app, microversions, unsupported};
use kilonova_wire::query::Query;
use kilonova_wire::schema::Schema;
use kilonova_wire::{JsonBody, Microversion, Refusal, time};
use serde_json::{Map, Value, json};

use crate::api::input;

const MAX_VALUE: usize = 255;

fn specs_schema() -> Value {
    json!({
        "type": "object",
        "patternProperties": {
            "^[a-zA-Z0-9-_:. ]{1,255}$": {"type": ["string", "number"], "maxLength": MAX_VALUE},
        },
        "additionalProperties": false,
    })
}

static CREATE: LazyLock<Schema> = LazyLock::new(|| {
    Schema::new(&json!({
        "type": "object",
        "properties": {"extra_specs": specs_schema()},
        "required": ["extra_specs"],
        "additionalProperties": false,
    }))
});
static UPDATE: LazyLock<Schema> = LazyLock::new(|| {
    let mut schema = specs_schema();
    schema["minProperties"] = json!(1);
    schema["maxProperties"] = json!(1);
    Schema::new(&schema)
});

fn read(specs: &Value, version: Microversion) -> Result<BTreeMap<String, String>, Refusal> {
    let none = Map::new();
    specs
        .as_object()
        .unwrap_or(&none)
        .iter()
        .map(|(key, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if value.chars().count() > MAX_VALUE {
                return Err(Refusal::bad_request(format!(
                    "Invalid input received: extra_specs value has {} characters, more than \
                     {MAX_VALUE}.",
                    value.chars().count()
                )));
            }
            if version >= microversions::EXTRA_SPECS_CHECKED {
                extra_specs::check(key, &value)?;
            }
            unsupported::extra_spec(key, &value)?;
            Ok((key.clone(), value))
        })
        .collect()
}

fn not_found(id: &str, key: &str) -> Refusal {
    Refusal::not_found(format!("Flavor {id} has no extra specs with key {key}."))
}

pub(super) async fn list(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    input::check_no_query(&query, version)?;
    let flavor = compute.store.read(move |tx| app::visible(tx, &caller, &id)).await?;
    Ok(Json(json!({"extra_specs": flavor.extra_specs})))
}

pub(super) async fn show(
    State(compute): State<Compute>,
    caller: Caller,
    version: Microversion,
    query: Query,
    Path((id, key)): Path<(String, String)>,
) -> Result<Json<Value>, Refusal> {
    input::check_no_query(&query, version)?;
    let name = id.clone();
    let flavor = compute.store.read(move |tx| app::visible(tx, &caller, &id)).await?;
    let value = flavor.extra_specs.get(&key).ok_or_else(|| not_found(&name, &key))?;
    Ok(Json(json!({ key: value })))
}

pub(super) async fn create(
    State(compute): State<Compute>,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    CREATE.check(&body)?;
    let specs = read(&body["extra_specs"], version)?;
    merge(&compute, id, specs).await?;
    Ok(Json(body))
}

pub(super) async fn update(
    State(compute): State<Compute>,
    version: Microversion,
    Path((id, key)): Path<(String, String)>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    UPDATE.check(&body)?;
    let specs = read(&body, version)?;
    if !specs.contains_key(&key) {
        return Err(Refusal::bad_request("Request body and URI mismatch"));
    }
    merge(&compute, id, specs).await?;
    Ok(Json(body))
}

async fn merge(
    compute: &Compute,
    id: String,
    specs: BTreeMap<String, String>,
) -> Result<(), Refusal> {
    let now = time::now();
    compute
        .store
        .write(move |tx| {
            app::change(tx, &id, now, |flavor| {
                flavor.extra_specs.extend(specs.clone());
                Ok(())
            })
        })
        .await?;
    Ok(())
}

pub(super) async fn delete(
    State(compute): State<Compute>,
    Path((id, key)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    let now = time::now();
    compute
        .store
        .write(move |tx| {
            app::change(tx, &id, now, |flavor| {
                flavor.extra_specs.remove(&key).map(|_| ()).ok_or_else(|| not_found(&id, &key))
            })
        })
        .await?;
    Ok(StatusCode::OK)
}
