//! `/images/{id}/metadata`: an image's properties.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use kilonova_image::{Error, Images};
use kilonova_wire::{Context, Fault, JsonBody, Microversion};
use serde_json::{Value, json};

use super::{fault, id_of};
use crate::api::input;
use crate::api::servers::metadata::parse;
use crate::microversions;

type Metadata = BTreeMap<String, String>;

async fn read(
    images: &Images,
    context: &Context,
    version: Microversion,
    id: &str,
) -> Result<Metadata, Fault> {
    input::within(version, microversions::before(microversions::IMAGE_METADATA_GONE))?;
    Ok(images.show(context, id_of(id)?).await.map_err(fault)?.properties)
}

async fn change(
    images: &Images,
    context: &Context,
    id: &str,
    change: impl Fn(&mut Metadata) -> Result<(), Error> + Send + 'static,
) -> Result<Metadata, Fault> {
    let changed = images.change_properties(context, id_of(id)?, change).await;
    Ok(changed.map_err(fault)?.properties)
}

/// The metadata that a body sets.
fn asked(version: Microversion, body: &Value, field: &str) -> Result<Metadata, Fault> {
    input::within(version, microversions::before(microversions::IMAGE_METADATA_GONE))?;
    input::alone(body, field)?;
    parse(&body[field])
}

pub(super) async fn list(
    State(images): State<Images>,
    context: Context,
    version: Microversion,
    Path(id): Path<String>,
) -> Result<Json<Value>, Fault> {
    Ok(Json(json!({"metadata": read(&images, &context, version, &id).await?})))
}

pub(super) async fn update(
    State(images): State<Images>,
    context: Context,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Fault> {
    let new = asked(version, &body, "metadata")?;
    let all = change(&images, &context, &id, move |metadata| {
        metadata.extend(new.clone());
        Ok(())
    });
    Ok(Json(json!({"metadata": all.await?})))
}

pub(super) async fn replace(
    State(images): State<Images>,
    context: Context,
    version: Microversion,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Fault> {
    let new = asked(version, &body, "metadata")?;
    let all = change(&images, &context, &id, move |metadata| {
        metadata.clone_from(&new);
        Ok(())
    });
    Ok(Json(json!({"metadata": all.await?})))
}

pub(super) async fn show(
    State(images): State<Images>,
    context: Context,
    version: Microversion,
    Path((id, key)): Path<(String, String)>,
) -> Result<Json<Value>, Fault> {
    match read(&images, &context, version, &id).await?.get(&key) {
        Some(value) => Ok(Json(json!({"meta": {key: value}}))),
        None => Err(Fault::not_found("The resource could not be found.")),
    }
}

pub(super) async fn set(
    State(images): State<Images>,
    context: Context,
    version: Microversion,
    Path((id, key)): Path<(String, String)>,
    JsonBody(body): JsonBody,
) -> Result<Json<Value>, Fault> {
    let new = asked(version, &body, "meta")?;
    if new.len() != 1 || !new.contains_key(&key) {
        return Err(Fault::bad_request("Request body and URI mismatch"));
    }
    let answer = json!({"meta": new});
    change(&images, &context, &id, move |metadata| {
        metadata.extend(new.clone());
        Ok(())
    })
    .await?;
    Ok(Json(answer))
}

pub(super) async fn remove(
    State(images): State<Images>,
    context: Context,
    version: Microversion,
    Path((id, key)): Path<(String, String)>,
) -> Result<StatusCode, Fault> {
    input::within(version, microversions::before(microversions::IMAGE_METADATA_GONE))?;
    let known = read(&images, &context, version, &id).await?.contains_key(&key);
    if !known {
        return Err(Fault::not_found("Invalid metadata key"));
    }
    change(&images, &context, &id, move |metadata| {
        metadata.remove(&key);
        Ok(())
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}
