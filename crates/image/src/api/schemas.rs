//! The schemas by which some clients know the attributes of an image, and what imports there are
//! (none).

use axum::Router;
use axum::extract::Path;
use axum::response::IntoResponse as _;
use axum::routing::get;
use kilonova_wire::{Context, Fault};
use serde_json::{Map, Value, json};

use super::Answer;
use crate::Images;
use crate::record::{CONTAINER_FORMATS, DISK_FORMATS};

pub(super) fn routes() -> Router<Images> {
    Router::new()
        .route("/v2/schemas/{name}", get(schema))
        .route("/v2/info/import", get(imports))
        .route("/v2/info/stores", get(stores))
}

fn image() -> Value {
    let text = json!({"type": ["null", "string"]});
    let number = json!({"type": ["null", "integer"]});
    let flag = json!({"type": "boolean"});
    let fixed = |mut schema: Value| {
        schema["readOnly"] = true.into();
        schema
    };
    let properties: Map<String, Value> = [
        ("id", json!({"type": "string"})),
        ("name", text.clone()),
        ("owner", text.clone()),
        ("status", fixed(json!({"type": "string", "enum": ["queued", "saving", "active"]}))),
        (
            "visibility",
            json!({"type": "string", "enum": ["community", "public", "private", "shared"]}),
        ),
        ("disk_format", json!({"type": ["null", "string"], "enum": DISK_FORMATS})),
        ("container_format", json!({"type": ["null", "string"], "enum": CONTAINER_FORMATS})),
        ("min_ram", json!({"type": "integer"})),
        ("min_disk", json!({"type": "integer"})),
        ("protected", flag.clone()),
        ("os_hidden", flag),
        ("tags", json!({"type": "array", "items": {"type": "string", "maxLength": 255}})),
        ("size", fixed(number.clone())),
        ("virtual_size", fixed(number)),
        ("checksum", fixed(text.clone())),
        ("os_hash_algo", fixed(text.clone())),
        ("os_hash_value", fixed(text)),
        ("created_at", fixed(json!({"type": "string"}))),
        ("updated_at", fixed(json!({"type": "string"}))),
        ("self", fixed(json!({"type": "string"}))),
        ("file", fixed(json!({"type": "string"}))),
        ("schema", fixed(json!({"type": "string"}))),
    ]
    .into_iter()
    .map(|(key, schema)| (key.to_owned(), schema))
    .collect();
    json!({
        "name": "image",
        "properties": properties,
        "additionalProperties": {"type": "string"},
        "links": [
            {"rel": "self", "href": "{self}"},
            {"rel": "enclosure", "href": "{file}"},
            {"rel": "describedby", "href": "{schema}"},
        ],
    })
}

async fn schema(_: Context, Path(name): Path<String>) -> Answer {
    let schema = match name.as_str() {
        "image" => image(),
        "images" => json!({
            "name": "images",
            "properties": {
                "images": {"type": "array", "items": image()},
                "first": {"type": "string"},
                "next": {"type": "string"},
                "schema": {"type": "string"},
            },
            "links": [
                {"rel": "first", "href": "{first}"},
                {"rel": "next", "href": "{next}"},
                {"rel": "describedby", "href": "{schema}"},
            ],
        }),
        _ => return Err(Fault::not_found("The resource could not be found.")),
    };
    Ok(axum::Json(schema).into_response())
}

async fn imports(_: Context) -> Answer {
    let methods = json!({"description": "Import methods available.", "type": "array", "value": []});
    Ok(axum::Json(json!({"import-methods": methods})).into_response())
}

async fn stores(_: Context) -> Answer {
    Err(Fault::not_found("Multi backend is not supported at this site."))
}
