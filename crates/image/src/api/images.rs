//! Single images.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use kilonova_access::{Guard, Routes, delete, get, patch};
use kilonova_ids::{ImageId, parse_uuid_like};
use kilonova_wire::{Base, Context, Fault, JsonBody, Refusal, time};
use serde_json::Value;

use super::{Answer, id_of, no_content, view::view};
use crate::app::apply;
use crate::app::patch::{self as steps, Form};
use crate::{Error, ImageRecord, Images};

pub(super) fn routes() -> Routes<Images> {
    Routes::new().route(
        "/v2/images/{id}",
        [
            get(Guard::Object(&["get_image"]), show),
            patch(Guard::Object(&["modify_image"]), change),
            delete(Guard::Object(&["delete_image"]), remove),
        ],
    )
}

const PATCH_TYPES: [(&str, Form); 3] = [
    ("application/openstack-images-v2.1-json-patch", Form::Draft10),
    ("application/openstack-images-v2.0-json-patch", Form::Draft4),
    ("application/json-patch+json", Form::Draft10),
];
const ACCEPT_PATCH: HeaderName = HeaderName::from_static("accept-patch");
/// The media types that a refusal lists, as in Glance.
const ACCEPTED: &str =
    "application/openstack-images-v2.0-json-patch, application/openstack-images-v2.1-json-patch";

pub(super) async fn create(
    State(images): State<Images>,
    context: Context,
    base: Base,
    body: JsonBody,
) -> Answer {
    if context.project_id.is_empty() {
        return Err(Refusal::forbidden("Creating an image requires a project-scoped token."));
    }
    let caller = images.requester(&context);
    let Value::Object(fields) = body.0 else {
        return Err(Refusal::bad_request("The request body must be an object."));
    };
    let id = match fields.get("id") {
        None | Some(Value::Null) => ImageId::new_v4(),
        Some(id) => id
            .as_str()
            .and_then(parse_uuid_like)
            .ok_or_else(|| Refusal::bad_request("Invalid value for id: it must be a UUID."))?,
    };
    let mut image = ImageRecord::new(id, context.project_id.clone(), time::now());
    for (key, value) in fields.iter().filter(|(key, _)| *key != "id") {
        // Policy is checked against the owner once all attributes are known.
        if key == "owner"
            && let Some(owner) = value.as_str()
        {
            image.owner = owner.to_owned();
        }
        apply(&mut image, key, value, &caller)?;
    }
    let image = images.create(&context, image).await?;
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
) -> Result<Response, Fault> {
    let id = id_of(&id)?;
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    let Some((_, form)) = PATCH_TYPES.iter().find(|(name, _)| *name == kind) else {
        let error =
            Error::Unsupported(format!("Image PATCH expects Content-Type one of: {ACCEPTED}"));
        return Err(
            Fault::from(error).with_header(ACCEPT_PATCH, HeaderValue::from_static(ACCEPTED))
        );
    };
    let steps = steps::read(&body.0, *form)?;
    let image = images.patch(&context, id, steps).await?;
    Ok(axum::Json(view(&image)).into_response())
}

async fn remove(State(images): State<Images>, context: Context, Path(id): Path<String>) -> Answer {
    images.delete(&context, id_of(&id)?).await?;
    no_content()
}
