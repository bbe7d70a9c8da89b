//! The JSON schemas that clients read to learn the attributes of images, and the empty lists of import methods and usages.
//! The schemas contain the attributes and limits of Glance's schemas, without descriptions.

use axum::extract::Path;
use axum::response::IntoResponse as _;
use kilonova_access::{Guard, Routes, get};
use kilonova_wire::{Context, Refusal};
use serde_json::{Map, Value, json};

use super::Answer;
use crate::Images;
use crate::record::{CONTAINER_FORMATS, DISK_FORMATS};

pub(super) fn routes() -> Routes<Images> {
    Routes::new()
        .route("/v2/schemas/{name}", [get(Guard::Anyone, schema)])
        .route("/v2/schemas/metadefs/{name}", [get(Guard::Anyone, metadef)])
        .route("/v2/info/import", [get(Guard::Anyone, imports)])
        .route("/v2/info/stores", [get(Guard::Anyone, stores)])
        .route("/v2/info/usage", [get(Guard::Anyone, usage)])
}

const UUID: &str =
    "^([0-9a-fA-F]){8}-([0-9a-fA-F]){4}-([0-9a-fA-F]){4}-([0-9a-fA-F]){4}-([0-9a-fA-F]){12}$";

fn text() -> Value {
    json!({"type": "string"})
}

fn text_or_null(longest: usize) -> Value {
    json!({"type": ["null", "string"], "maxLength": longest})
}

fn fixed(mut schema: Value) -> Value {
    schema["readOnly"] = true.into();
    schema
}

/// One of `words` or null, because clients validate images and a new image has no formats.
fn word_or_null(words: &[&str]) -> Value {
    let words: Vec<Option<&str>> =
        [None].into_iter().chain(words.iter().copied().map(Some)).collect();
    json!({"type": ["null", "string"], "enum": words})
}

fn object(name: &str, properties: &[(&str, Value)], additional: Value) -> Value {
    let properties: Map<String, Value> =
        properties.iter().map(|(key, schema)| ((*key).to_owned(), schema.clone())).collect();
    json!({"name": name, "properties": properties, "additionalProperties": additional})
}

fn image() -> Value {
    let number = json!({"type": ["null", "integer"]});
    let flag = json!({"type": "boolean"});
    let visibilities = ["community", "public", "private", "shared"];
    let states = [
        "queued",
        "saving",
        "active",
        "killed",
        "deleted",
        "uploading",
        "importing",
        "pending_delete",
        "deactivated",
    ];
    let mut schema = object(
        "image",
        &[
            ("id", json!({"type": "string", "pattern": UUID})),
            ("name", text_or_null(255)),
            ("owner", text_or_null(255)),
            ("status", fixed(json!({"type": "string", "enum": states}))),
            ("visibility", json!({"type": "string", "enum": visibilities})),
            ("disk_format", word_or_null(&DISK_FORMATS)),
            ("container_format", word_or_null(&CONTAINER_FORMATS)),
            ("min_ram", json!({"type": "integer"})),
            ("min_disk", json!({"type": "integer"})),
            ("protected", flag.clone()),
            ("os_hidden", flag),
            ("tags", json!({"type": "array", "items": {"type": "string", "maxLength": 255}})),
            ("size", fixed(number.clone())),
            ("virtual_size", fixed(number)),
            ("checksum", fixed(text_or_null(32))),
            ("os_hash_algo", fixed(text_or_null(64))),
            ("os_hash_value", fixed(text_or_null(128))),
            ("created_at", fixed(text())),
            ("updated_at", fixed(text())),
            ("self", fixed(text())),
            ("file", fixed(text())),
            ("schema", fixed(text())),
        ],
        text(),
    );
    schema["links"] = json!([
        {"rel": "self", "href": "{self}"},
        {"rel": "enclosure", "href": "{file}"},
        {"rel": "describedby", "href": "{schema}"},
    ]);
    schema
}

fn member() -> Value {
    let answers = ["pending", "accepted", "rejected"];
    object(
        "member",
        &[
            ("member_id", text()),
            ("image_id", json!({"type": "string", "pattern": UUID})),
            ("created_at", text()),
            ("updated_at", text()),
            ("status", json!({"type": "string", "enum": answers})),
            ("schema", fixed(text())),
        ],
        false.into(),
    )
}

fn task(whole: bool) -> Value {
    let object_or_null = json!({"type": ["null", "object"]});
    let mut properties = vec![
        ("id", json!({"type": "string", "pattern": UUID})),
        (
            "type",
            json!({"type": "string", "enum": ["import", "api_image_import", "location_import"]}),
        ),
        (
            "status",
            json!({"type": "string", "enum": ["pending", "processing", "success", "failure"]}),
        ),
        ("owner", text()),
        ("image_id", text()),
        ("request_id", text()),
        ("user_id", text()),
        ("expires_at", json!({"type": ["null", "string"]})),
        ("created_at", text()),
        ("updated_at", text()),
        ("self", fixed(text())),
        ("schema", fixed(text())),
    ];
    if whole {
        properties.extend([
            ("input", object_or_null.clone()),
            ("result", object_or_null),
            ("message", text()),
        ]);
    }
    object("task", &properties, false.into())
}

fn collection(name: &str, item: Value) -> Value {
    json!({
        "name": name,
        "properties": {
            name: {"type": "array", "items": item},
            "first": {"type": "string"},
            "next": {"type": "string"},
            "schema": {"type": "string"},
        },
        "links": [
            {"rel": "first", "href": "{first}"},
            {"rel": "next", "href": "{next}"},
            {"rel": "describedby", "href": "{schema}"},
        ],
    })
}

async fn schema(_: Context, Path(name): Path<String>) -> Answer {
    let schema = match name.as_str() {
        "image" => image(),
        "images" => collection("images", image()),
        "member" => member(),
        "members" => collection("members", member()),
        "task" => task(true),
        "tasks" => collection("tasks", task(false)),
        _ => return Err(Refusal::not_found("The resource could not be found.")),
    };
    Ok(axum::Json(schema).into_response())
}

/// The schemas of [`super::metadefs`], which clients read before they list metadata definitions.
const METADEFS: &str = include_str!("metadefs.json");

async fn metadef(_: Context, Path(name): Path<String>) -> Answer {
    let schemas: Value = serde_json::from_str(METADEFS).map_err(Refusal::internal)?;
    match schemas.get(&name) {
        Some(schema) => Ok(axum::Json(schema).into_response()),
        None => Err(Refusal::not_found("The resource could not be found.")),
    }
}

async fn imports(_: Context) -> Answer {
    let methods = json!({"description": "Import methods available.", "type": "array", "value": []});
    Ok(axum::Json(json!({"import-methods": methods})).into_response())
}

async fn stores(_: Context) -> Answer {
    Err(Refusal::not_found("Multi backend is not supported at this site."))
}

/// No usages, as in Glance without unified limits (`glance/quota/keystone.py`).
async fn usage(_: Context) -> Answer {
    Ok(axum::Json(json!({"usage": {}})).into_response())
}
