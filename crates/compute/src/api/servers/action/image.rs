//! `createImage` and `createBackup`: snapshots of the server's disk.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use kilonova_compute_app::actions::ServerAction;
use kilonova_compute_app::flows;
use kilonova_compute_app::flows::operation::Backup;
use kilonova_compute_app::images::Snapshot;
use kilonova_compute_app::{Error, microversions, quotas, volumes};
use kilonova_ids::ImageId;
use kilonova_wire::{Microversion, Refusal};
use serde_json::{Value, json};

use super::super::{find, metadata};
use super::ActionRequest;
use crate::api::input;
use crate::api::links::Base;

/// The rule for images of volume-backed servers.
const OF_VOLUMES: &str = "os_compute_api:servers:create_image:allow_volume_backed";

pub(super) async fn act(request: ActionRequest) -> Result<Response, Refusal> {
    let argument = &request.argument;
    let backup = if request.action == ServerAction::CreateBackup {
        let backup_type = argument["backup_type"].as_str().unwrap_or_default().to_owned();
        Some(Backup { backup_type, rotation: number(&argument["rotation"]) })
    } else {
        None
    };
    let name = argument["name"].as_str().unwrap_or_default().trim().to_owned();
    input::check_name("name", &name)?;
    let metadata = match argument.get("metadata") {
        None => Default::default(),
        Some(value) => metadata::parse(value)?,
    };
    if request.version < microversions::IMAGE_METADATA_GONE && !metadata.is_empty() {
        check_limit(&request, metadata.len()).await?;
    }
    let (version, base) = (request.version, request.base.clone());
    let snapshot = Snapshot { name, metadata, backup };
    // A backup with rotation 0 is deleted immediately, so the answer does not name it.
    let has_image = snapshot.backup.as_ref().is_none_or(|backup| backup.rotation > 0);
    if snapshot.backup.is_none()
        && let Some(server) = request.volume_backed(Some(OF_VOLUMES)).await?
    {
        let (compute, context) = (&request.compute, &request.context);
        let image = volumes::create_image(compute, context, &server, &snapshot).await?;
        return Ok(answer(version, &base, image));
    }
    let prepared = request.prepare_image(|_| snapshot.clone()).await?;
    let compute = request.compute.clone();
    let begun = request
        .write_with(flows::expect_change, move |tx, request, server, now| {
            let (compute, context) = (&request.compute, &request.context);
            flows::snapshot(tx, compute, context, server, &snapshot, prepared, now)
        })
        .await;
    if begun.is_err() {
        compute.images.withdraw(&compute.store, prepared).await;
    }
    let image = begun?;
    Ok(if has_image { answer(version, &base, image) } else { StatusCode::ACCEPTED.into_response() })
}

/// Refuses more metadata than the quota `metadata_items` allows. (Upstream:
/// `check_img_metadata_properties_quota` in `nova/api/openstack/common.py`.)
///
/// # Errors
/// 403. A server that the caller may not see or use is refused first.
async fn check_limit(request: &ActionRequest, items: usize) -> Result<(), Refusal> {
    let request = request.clone();
    let store = request.compute.store.clone();
    let exceeded = store
        .read(move |tx| {
            let limit = quotas::ask_request_limits(tx, &request.context)?;
            find::find(tx, &request.caller, &request.id)?;
            Ok::<_, Error>(limit.exceeded(tx, items)?.is_some())
        })
        .await?;
    if exceeded {
        return Err(Refusal::forbidden("Image metadata limit exceeded"));
    }
    Ok(())
}

fn number(value: &Value) -> i64 {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_default()
}

/// The answer: the image's id in the body from 2.45 on, its URL in `Location` before.
fn answer(version: Microversion, base: &Base, image: ImageId) -> Response {
    if version >= microversions::IMAGE_ID_IN_BODY {
        return (StatusCode::ACCEPTED, Json(json!({"image_id": image}))).into_response();
    }
    let root = base.cloud();
    let mut response = StatusCode::ACCEPTED.into_response();
    if let Ok(value) = HeaderValue::from_str(&format!("{root}/image/images/{image}")) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    response
}
