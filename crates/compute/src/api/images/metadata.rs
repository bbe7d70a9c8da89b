//! `/images/{id}/metadata`: the properties of an image.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use kilonova_compute_app::images::ImageService;
use kilonova_compute_app::microversions;
use kilonova_wire::{Context, JsonBody, Microversion, Refusal};
use serde_json::{Value, json};

use super::id_of;
use crate::api::input;
use crate::api::servers::metadata::parse;

type Metadata = BTreeMap<String, String>;

async fn read(
    images: &ImageService,
    context: &Context,
    version: Microversion,
    id: &str,
) -> Result<Metadata, Refusal> {
    input::check_microversion(version, microversions::before(microversions::IMAGE_METADATA_GONE))?;
    Ok(images.show(context, id_of(id)?).await?.properties)
}

async fn change(
    images: &ImageService,
    context: &Context,
    id: &str,
    change: impl Fn(&mut Metadata) + Send + 'static,
) -> Result<Metadata, Refusal> {
    Ok(images.change_properties(context, id_of(id)?, change).await?.properties)
}

/// The metadata in a body.
fn read_body(version: Microversion, body: &Value, field: &str) -> Result<Metadata, Refusal> {
    input::check_microversion(version, microversions::before(microversions::IMAGE_METADATA_GONE))?;
    input::check_only_field(body, field)?;
    parse(&body[field])
}

pub(super) async fn list(
    State(images): State<ImageService>,
    context: Context,
    version: Microversion,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    Ok(Json(json!({"metadata": read(&images, &context, version, &id).await?})))
}

pub(super) async fn update(
    State(images): State<ImageService>,
    context: Context,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    let new = read_body(version, &body, "metadata")?;
    let all = change(&images, &context, &id, move |metadata| {
        metadata.extend(new.clone());
    });
    Ok(Json(json!({"metadata": all.await?})))
}

pub(super) async fn replace(
    State(images): State<ImageService>,
    context: Context,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    let new = read_body(version, &body, "metadata")?;
    let all = change(&images, &context, &id, move |metadata| {
        metadata.clone_from(&new);
    });
    Ok(Json(json!({"metadata": all.await?})))
}

pub(super) async fn show(
    State(images): State<ImageService>,
    context: Context,
    version: Microversion,
    Path((id, key)): Path<(String, String)>,
) -> Result<Json<Value>, Refusal> {
    match read(&images, &context, version, &id).await?.get(&key) {
        Some(value) => Ok(Json(json!({"meta": {key: value}}))),
        None => Err(Refusal::not_found("The resource could not be found.")),
    }
}

pub(super) async fn set(
    State(images): State<ImageService>,
    context: Context,
    version: Microversion,
    Path((id, key)): Path<(String, String)>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Refusal> {
    let new = read_body(version, &body, "meta")?;
    if new.len() != 1 || !new.contains_key(&key) {
        return Err(Refusal::bad_request("Request body and URI mismatch"));
    }
    let answer = json!({"meta": new});
    change(&images, &context, &id, move |metadata| {
        metadata.extend(new.clone());
    })
    .await?;
    Ok(Json(answer))
}

pub(super) async fn remove(
    State(images): State<ImageService>,
    context: Context,
    version: Microversion,
    Path((id, key)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    input::check_microversion(version, microversions::before(microversions::IMAGE_METADATA_GONE))?;
    let known = read(&images, &context, version, &id).await?.contains_key(&key);
    if !known {
        return Err(Refusal::not_found("Invalid metadata key"));
    }
    change(&images, &context, &id, move |metadata| {
        metadata.remove(&key);
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}
