//! `createImage`, `createBackup`: an image of the server's disk.

use std::sync::LazyLock;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use kilonova_ids::ImageId;
use kilonova_wire::schema::Schema;
use kilonova_wire::{Base, Fault, Microversion};
use serde_json::{Value, json};

use super::super::metadata;
use super::Asked;
use crate::api::input;
use crate::flows::operation::Backup;
use crate::flows::{self, Snapshot};

static IMAGE: LazyLock<Schema> = LazyLock::new(|| schema(&[]));
static BACKUP: LazyLock<Schema> = LazyLock::new(|| schema(&["backup_type", "rotation"]));

fn schema(more: &[&str]) -> Schema {
    let mut properties = json!({
        "name": {"type": "string", "minLength": 1, "maxLength": 255},
        "metadata": {"type": "object"},
        "backup_type": {"type": "string"},
        "rotation": input::integer_schema(0),
    });
    let mut required = vec!["name"];
    required.extend(more);
    if let (Some(properties), true) = (properties.as_object_mut(), more.is_empty()) {
        properties.retain(|key, _| key == "name" || key == "metadata");
    }
    Schema::new(&json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    }))
}

pub(super) async fn act(asked: Asked) -> Result<Response, Fault> {
    let wanted = &asked.argument;
    let backup = if asked.name == "createBackup" {
        BACKUP.check(wanted)?;
        let backup_type = wanted["backup_type"].as_str().unwrap_or_default().to_owned();
        Some(Backup { backup_type, rotation: number(&wanted["rotation"]) })
    } else {
        IMAGE.check(wanted)?;
        None
    };
    let name = wanted["name"].as_str().unwrap_or_default().trim().to_owned();
    input::name("name", &name)?;
    let metadata = match wanted.get("metadata") {
        None => Default::default(),
        Some(value) => metadata::parse(value)?,
    };
    metadata::check_count(&metadata)?;
    let (version, base) = (asked.version, asked.base.clone());
    let request = Snapshot { name, metadata, backup };
    // Without a backup of it kept, none is said to be there.
    let shown = request.backup.as_ref().is_none_or(|backup| backup.rotation > 0);
    let image = asked
        .write(move |tx, asked, server, now| {
            flows::snapshot(tx, &asked.compute, &asked.context, server, &request, now)
        })
        .await?;
    Ok(if shown { answer(version, &base, image) } else { StatusCode::ACCEPTED.into_response() })
}

fn number(value: &Value) -> i64 {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_default()
}

/// The id from 2.45 on, before as an address.
fn answer(version: Microversion, base: &Base, image: ImageId) -> Response {
    if version >= Microversion(2, 45) {
        return (StatusCode::ACCEPTED, Json(json!({"image_id": image}))).into_response();
    }
    let root = base.0.strip_suffix("/compute").unwrap_or(&base.0);
    let mut response = StatusCode::ACCEPTED.into_response();
    if let Ok(value) = HeaderValue::from_str(&format!("{root}/image/images/{image}")) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    response
}
