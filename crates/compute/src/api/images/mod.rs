//! `/images`: Nova's proxy of the image service, up to microversion 2.35, and to 2.38 for metadata.
//!
//! The image service decides with its own policy, as it does when Nova passes a user's token on to
//! Glance; Nova has no rule of its own for these paths. Must never read or write an image but
//! through [`Images`].

mod metadata;
mod view;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use kilonova_access::{Guard, Routes, delete, get, post, put};
use kilonova_ids::{ImageId, parse_uuid_like};
use kilonova_image::{Acceptance, Error, ImageFilters, ImageRecord, Images};
use kilonova_wire::paging::Page;
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Context, Fault, Microversion, time};
use serde_json::{Value, json};

use super::{input, links};
use crate::microversions;

const SHOW: Guard = Guard::Object(&["get_image"]);

/// Routes over the image service, to be put behind its policy.
pub(super) fn routes() -> Routes<Images> {
    Routes::new()
        .route("/v2.1/images", [get("get_images", brief)])
        .route("/v2.1/images/detail", [get("get_images", detail)])
        .route("/v2.1/images/{id}", [get(SHOW, show), delete("delete_image", remove)])
        .route(
            "/v2.1/images/{id}/metadata",
            [
                get(SHOW, metadata::list),
                post("modify_image", metadata::update),
                put("modify_image", metadata::replace),
            ],
        )
        .route(
            "/v2.1/images/{id}/metadata/{key}",
            [
                get(SHOW, metadata::show),
                put("modify_image", metadata::set),
                delete("modify_image", metadata::remove),
            ],
        )
}

fn missing() -> Fault {
    Fault::not_found("Image not found.")
}

fn id_of(id: &str) -> Result<ImageId, Fault> {
    parse_uuid_like(id).ok_or_else(missing)
}

/// The image service's error, where Nova has words of its own for it.
fn fault(error: Error) -> Fault {
    match error {
        Error::NotFound(_) => missing(),
        Error::TooLarge(why) => Fault::forbidden(why),
        other => other.into(),
    }
}

async fn brief(
    State(images): State<Images>,
    context: Context,
    version: Microversion,
    base: Base,
    query: Query,
) -> Result<Json<Value>, Fault> {
    input::within(version, microversions::before(microversions::NETWORK_PROXIES_GONE))?;
    list(images, context, base, query, "images", view::brief).await
}

async fn detail(
    State(images): State<Images>,
    context: Context,
    version: Microversion,
    base: Base,
    query: Query,
) -> Result<Json<Value>, Fault> {
    input::within(version, microversions::before(microversions::NETWORK_PROXIES_GONE))?;
    list(images, context, base, query, "images/detail", view::detail).await
}

async fn list(
    images: Images,
    context: Context,
    base: Base,
    query: Query,
    path: &str,
    view: fn(&ImageRecord, &Base) -> Value,
) -> Result<Json<Value>, Fault> {
    let page = Page::read(&query)?;
    let marker = match page.marker.as_deref().filter(|marker| !marker.is_empty()) {
        None => None,
        Some(marker) => Some(parse_uuid_like(marker).ok_or_else(|| {
            Fault::bad_request(format!("marker [{}] not found", marker.escape_debug()))
        })?),
    };
    let filters = filters(&query)?;
    let (found, more) = images.list(&context, filters, marker, page.limit).await.map_err(fault)?;
    let mut answer = json!({
        "images": found.iter().map(|image| view(image, &base)).collect::<Vec<_>>(),
    });
    if let Some(last) = found.last().filter(|_| more) {
        answer["images_links"] = links::next(&base, path, &query, &last.id.to_string());
    }
    Ok(Json(answer))
}

/// The keys that Nova passes on; it ignores every other key.
fn filters(query: &Query) -> Result<ImageFilters, Fault> {
    let mut filters =
        ImageFilters { shared: Some(Acceptance::Accepted), ..ImageFilters::default() };
    for (key, value) in &query.0 {
        let number = || {
            value.trim().parse().map_err(|_| input::wrong_query(key, value, "It is not a number."))
        };
        let mut property = |key: &str, value: &str| {
            filters.properties.push((key.to_owned(), value.to_owned()));
        };
        match key.as_str() {
            // A link to the server is as good as its id.
            "server" => property("instance_uuid", value.rsplit('/').next().unwrap_or_default()),
            "type" => property("image_type", value),
            "name" => filters.names = vec![value.clone()],
            "status" => filters.statuses = vec![value.to_lowercase()],
            "minRam" => filters.min_ram = Some(number()?),
            "minDisk" => filters.min_disk = Some(number()?),
            "changes-since" => {
                let since = time::parse(value)
                    .ok_or_else(|| input::wrong_query(key, value, "It is not a time."))?;
                filters.changed_since = Some(since);
            }
            key => {
                if let Some(key) = key.strip_prefix("property-") {
                    property(key, value);
                }
            }
        }
    }
    Ok(filters)
}

async fn show(
    State(images): State<Images>,
    context: Context,
    version: Microversion,
    base: Base,
    Path(id): Path<String>,
) -> Result<Json<Value>, Fault> {
    input::within(version, microversions::before(microversions::NETWORK_PROXIES_GONE))?;
    let image = images.show(&context, id_of(&id)?).await.map_err(fault)?;
    Ok(Json(json!({"image": view::detail(&image, &base)})))
}

async fn remove(
    State(images): State<Images>,
    context: Context,
    version: Microversion,
    Path(id): Path<String>,
) -> Result<StatusCode, Fault> {
    input::within(version, microversions::before(microversions::NETWORK_PROXIES_GONE))?;
    match images.delete(&context, id_of(&id)?).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(Error::Forbidden(_)) => {
            Err(Fault::forbidden("You are not allowed to delete the image."))
        }
        Err(error) => Err(fault(error)),
    }
}
