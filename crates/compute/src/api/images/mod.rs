//! `/images`: Nova's proxy of the image service, up to microversion 2.35, and up to 2.38 for
//! metadata.
//!
//! The image service applies its own policy, as Glance does when Nova passes on the user's token;
//! Nova has no rules for these paths. This module must access images only through [`Images`].

mod metadata;
mod view;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use kilonova_access::{Guard, Routes, delete, get, post, put};
use kilonova_compute_app::microversions;
use kilonova_ids::{ImageId, parse_uuid_like};
use kilonova_image::{Acceptance, Error, ImageFilters, ImageRecord, Images};
use kilonova_wire::paging::Page;
use kilonova_wire::query::Query;
use kilonova_wire::{Context, Microversion, Refusal, time};
use serde_json::{Value, json};

use super::{input, links};
use crate::api::links::Base;

const SHOW: Guard = Guard::Object(&["get_image"]);

/// The routes of the proxy. The caller guards them with the image service's policy.
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

fn missing() -> Refusal {
    Refusal::not_found("Image not found.")
}

fn id_of(id: &str) -> Result<ImageId, Refusal> {
    parse_uuid_like(id).ok_or_else(missing)
}

/// Nova's refusal for an error of the image service.
fn refusal(error: Error) -> Refusal {
    match error {
        Error::NotFound(_) => missing(),
        Error::TooLarge(why) => Refusal::forbidden(why),
        other => other.into(),
    }
}

async fn brief(
    State(images): State<Images>,
    context: Context,
    version: Microversion,
    base: Base,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    input::check_microversion(version, microversions::before(microversions::NETWORK_PROXIES_GONE))?;
    list(images, context, base, query, "images", view::brief).await
}

async fn detail(
    State(images): State<Images>,
    context: Context,
    version: Microversion,
    base: Base,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    input::check_microversion(version, microversions::before(microversions::NETWORK_PROXIES_GONE))?;
    list(images, context, base, query, "images/detail", view::detail).await
}

async fn list(
    images: Images,
    context: Context,
    base: Base,
    query: Query,
    path: &str,
    view: fn(&ImageRecord, &Base) -> Value,
) -> Result<Json<Value>, Refusal> {
    let page = Page::read(&query)?;
    let marker = match page.marker.as_deref().filter(|marker| !marker.is_empty()) {
        None => None,
        Some(marker) => Some(parse_uuid_like(marker).ok_or_else(|| {
            Refusal::bad_request(format!("marker [{}] not found", marker.escape_debug()))
        })?),
    };
    let filters = filters(&query)?;
    let (found, more) =
        images.list(&context, filters, marker, page.limit).await.map_err(refusal)?;
    let mut answer = json!({
        "images": found.iter().map(|image| view(image, &base)).collect::<Vec<_>>(),
    });
    if let Some(last) = found.last().filter(|_| more) {
        answer["images_links"] = links::next(&base, path, &query, &last.id.to_string());
    }
    Ok(Json(answer))
}

/// The filters that Nova passes on. It ignores every other key.
fn filters(query: &Query) -> Result<ImageFilters, Refusal> {
    let mut filters =
        ImageFilters { shared: Some(Acceptance::Accepted), ..ImageFilters::default() };
    for (key, value) in &query.0 {
        let number = || {
            value
                .trim()
                .parse()
                .map_err(|_| input::invalid_query(key, value, "It is not a number."))
        };
        let mut property = |key: &str, value: &str| {
            filters.properties.push((key.to_owned(), value.to_owned()));
        };
        match key.as_str() {
            // The value is the server's id or a link to the server.
            "server" => property("instance_uuid", value.rsplit('/').next().unwrap_or_default()),
            "type" => property("image_type", value),
            "name" => filters.names = vec![value.clone()],
            "status" => filters.statuses = vec![value.to_lowercase()],
            "minRam" => filters.min_ram = Some(number()?),
            "minDisk" => filters.min_disk = Some(number()?),
            "changes-since" => {
                let since = time::parse(value)
                    .ok_or_else(|| input::invalid_query(key, value, "It is not a time."))?;
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
) -> Result<Json<Value>, Refusal> {
    input::check_microversion(version, microversions::before(microversions::NETWORK_PROXIES_GONE))?;
    let image = images.show(&context, id_of(&id)?).await.map_err(refusal)?;
    Ok(Json(json!({"image": view::detail(&image, &base)})))
}

async fn remove(
    State(images): State<Images>,
    context: Context,
    version: Microversion,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    input::check_microversion(version, microversions::before(microversions::NETWORK_PROXIES_GONE))?;
    match images.delete(&context, id_of(&id)?).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(Error::Forbidden(_)) => {
            Err(Refusal::forbidden("You are not allowed to delete the image."))
        }
        Err(error) => Err(refusal(error)),
    }
}
