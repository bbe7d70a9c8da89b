//! `createImage`, `createBackup`: an image of the server's disk.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use kilonova_ids::ImageId;
use kilonova_wire::{Base, Fault, Microversion};
use serde_json::{Value, json};

use super::super::metadata;
use super::ActionRequest;
use crate::api::input;
use crate::app::actions::ServerAction;
use crate::flows::operation::Backup;
use crate::flows::{self, Snapshot};
use crate::microversions;

pub(super) async fn act(request: ActionRequest) -> Result<Response, Fault> {
    let wanted = &request.argument;
    let backup = if request.action == ServerAction::CreateBackup {
        let backup_type = wanted["backup_type"].as_str().unwrap_or_default().to_owned();
        Some(Backup { backup_type, rotation: number(&wanted["rotation"]) })
    } else {
        None
    };
    let name = wanted["name"].as_str().unwrap_or_default().trim().to_owned();
    input::name("name", &name)?;
    let metadata = match wanted.get("metadata") {
        None => Default::default(),
        Some(value) => metadata::parse(value)?,
    };
    metadata::check_count(&metadata)?;
    let (version, base) = (request.version, request.base.clone());
    let snapshot = Snapshot { name, metadata, backup };
    // Without a backup of it kept, none is said to be there.
    let shown = snapshot.backup.as_ref().is_none_or(|backup| backup.rotation > 0);
    let image = request
        .write(move |tx, request, server, now| {
            flows::snapshot(tx, &request.compute, &request.context, server, &snapshot, now)
        })
        .await?;
    Ok(if shown { answer(version, &base, image) } else { StatusCode::ACCEPTED.into_response() })
}

fn number(value: &Value) -> i64 {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_default()
}

/// The id from 2.45 on, before as an address.
fn answer(version: Microversion, base: &Base, image: ImageId) -> Response {
    if version >= microversions::IMAGE_ID_IN_BODY {
        return (StatusCode::ACCEPTED, Json(json!({"image_id": image}))).into_response();
    }
    let root = base.0.strip_suffix("/compute").unwrap_or(&base.0);
    let mut response = StatusCode::ACCEPTED.into_response();
    if let Ok(value) = HeaderValue::from_str(&format!("{root}/image/images/{image}")) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    response
}
