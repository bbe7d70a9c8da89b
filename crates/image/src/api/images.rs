//! Images, one at a time.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::IntoResponse as _;
use axum::routing::get;
use kilonova_ids::{ImageId, parse_uuid_like};
use kilonova_wire::time::now_micros;
use kilonova_wire::{Base, Context, Fault, JsonBody};
use serde_json::Value;

use super::{Answer, id_of, no_content, view::view};
use crate::app::{apply, patch};
use crate::{Error, ImageRecord, Images};

pub(super) fn routes() -> Router<Images> {
    Router::new().route("/v2/images/{id}", get(show).patch(change).delete(delete))
}

const PATCH_TYPES: [&str; 2] =
    ["application/openstack-images-v2.1-json-patch", "application/json-patch+json"];

pub(super) async fn create(
    State(images): State<Images>,
    context: Context,
    base: Base,
    body: JsonBody,
) -> Answer {
    if context.project_id.is_empty() {
        return Err(Fault::forbidden("An image belongs to a project; use a token with a project."));
    }
    let Value::Object(fields) = body.0 else {
        return Err(Fault::bad_request("The request body has to be an object."));
    };
    let id = match fields.get("id") {
        None | Some(Value::Null) => ImageId::new_v4(),
        Some(id) => id
            .as_str()
            .and_then(parse_uuid_like)
            .ok_or_else(|| Fault::bad_request("Invalid value for id: it has to be a UUID."))?,
    };
    let mut image = ImageRecord::new(id, context.project_id.clone(), now_micros());
    for (key, value) in fields.iter().filter(|(key, _)| *key != "id") {
        apply(&mut image, key, value, &context)?;
    }
    let image = images.create(image).await?;
    let mut response = (StatusCode::CREATED, axum::Json(view(&image))).into_response();
    if let Ok(location) = HeaderValue::try_from(format!("{}/v2/images/{id}", base.0)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

async fn show(State(images): State<Images>, context: Context, Path(id): Path<String>) -> Answer {
    let image = images.show(&context, id_of(&id)?).await?;
    Ok(axum::Json(view(&image)).into_response())
}

async fn change(
    State(images): State<Images>,
    context: Context,
    headers: HeaderMap,
    Path(id): Path<String>,
    body: JsonBody,
) -> Answer {
    let id = id_of(&id)?;
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    if !PATCH_TYPES.contains(&kind) {
        return Err(Error::Unsupported(format!(
            "A change of an image is sent as {}.",
            PATCH_TYPES[0]
        ))
        .into());
    }
    let image = images.patch(&context, id, patch::read(&body.0)?).await?;
    Ok(axum::Json(view(&image)).into_response())
}

async fn delete(State(images): State<Images>, context: Context, Path(id): Path<String>) -> Answer {
    images.delete(&context, id_of(&id)?).await?;
    no_content()
}
