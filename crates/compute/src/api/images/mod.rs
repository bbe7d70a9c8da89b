//! `/images`: Nova's proxy for the image service, up to microversion 2.35, and up to 2.38 for
//! metadata.
//!
//! The image service applies its own policy, as Glance does when Nova passes on the user's token;
//! Nova has no rules for these paths. If the cloud has a Glance, only Glance's policy applies. This
//! module must access images only through [`ImageService`].

mod metadata;
mod view;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use kilonova_access::{Guard, Routes, delete, get, post, put};
use kilonova_compute_app::images::ImageService;
use kilonova_compute_app::microversions;
use kilonova_ids::{ImageId, parse_uuid_like};
use kilonova_image::{Acceptance, ImageFilters, ImageRecord};
use kilonova_wire::paging::Page;
use kilonova_wire::query::Query;
use kilonova_wire::{Context, Microversion, Refusal, time};
use serde_json::{Value, json};

use super::{input, links};
use crate::api::links::Base;

const SHOW: Guard = Guard::Object(&["get_image"]);
const MODIFY: Guard = Guard::Object(&["modify_image"]);
const DELETE: Guard = Guard::Object(&["delete_image"]);

/// The routes of the proxy. If `are_guarded`, the caller must guard them with the policy of our image
/// service.
pub(super) fn routes(are_guarded: bool) -> Routes<ImageService> {
    let guard = |guard: Guard| if are_guarded { guard } else { Guard::Anyone };
    let (see, modify) = (guard(SHOW), guard(MODIFY));
    let list = guard("get_images".into());
    Routes::new()
        .route("/v2.1/images", [get(list, brief)])
        .route("/v2.1/images/detail", [get(list, detail)])
        .route("/v2.1/images/{id}", [get(see, show), delete(guard(DELETE), remove)])
        .route(
            "/v2.1/images/{id}/metadata",
            [
                get(see, metadata::list),
                post(modify, metadata::update),
                put(modify, metadata::replace),
            ],
        )
        .route(
            "/v2.1/images/{id}/metadata/{key}",
            [
                get(see, metadata::show),
                put(modify, metadata::set),
                delete(modify, metadata::remove),
            ],
        )
}

fn missing() -> Refusal {
    Refusal::not_found("Image not found.")
}

fn id_of(id: &str) -> Result<ImageId, Refusal> {
    parse_uuid_like(id).ok_or_else(missing)
}

async fn brief(
    State(images): State<ImageService>,
    context: Context,
    version: Microversion,
    base: Base,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    input::check_microversion(version, microversions::before(microversions::NETWORK_PROXIES_GONE))?;
    list(images, context, base, query, "images", view::brief).await
}

async fn detail(
    State(images): State<ImageService>,
    context: Context,
    version: Microversion,
    base: Base,
    query: Query,
) -> Result<Json<Value>, Refusal> {
    input::check_microversion(version, microversions::before(microversions::NETWORK_PROXIES_GONE))?;
    list(images, context, base, query, "images/detail", view::detail).await
}

async fn list(
    images: ImageService,
    context: Context,
    base: Base,
    query: Query,
    path: &str,
    view: fn(&ImageRecord, &Base, Option<&str>) -> Value,
) -> Result<Json<Value>, Refusal> {
    let page = Page::read(&query)?;
    let marker = match page.marker.as_deref().filter(|marker| !marker.is_empty()) {
        None => None,
        Some(marker) => Some(parse_uuid_like(marker).ok_or_else(|| {
            Refusal::bad_request(format!("marker [{}] not found", marker.escape_debug()))
        })?),
    };
    let filters = filters(&query)?;
    let (found, more) = images.list(&context, filters, marker, page.limit).await?;
    let glance = images.location().await;
    let shown = found.iter().map(|image| view(image, &base, glance.as_deref()));
    let mut answer = json!({"images": shown.collect::<Vec<_>>()});
    if let Some(last) = found.last().filter(|_| more) {
        answer["images_links"] = links::next(&base, path, &query, &last.id.to_string());
    }
    Ok(Json(answer))
}

/// The filters that Nova passes on to the image service. Other keys are ignored.
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
            filters.properties.insert((key.to_owned(), value.to_owned()));
        };
        match key.as_str() {
            // The value is the server's id or a link to the server.
            "server" => property("instance_uuid", value.rsplit('/').next().unwrap_or_default()),
            "type" => property("image_type", value),
            "name" => filters.names = [value.clone()].into(),
            "status" => filters.statuses = [value.to_lowercase()].into(),
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
    State(images): State<ImageService>,
    context: Context,
    version: Microversion,
    base: Base,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    input::check_microversion(version, microversions::before(microversions::NETWORK_PROXIES_GONE))?;
    let image = images.show(&context, id_of(&id)?).await?;
    let glance = images.location().await;
    Ok(Json(json!({"image": view::detail(&image, &base, glance.as_deref())})))
}

async fn remove(
    State(images): State<ImageService>,
    context: Context,
    version: Microversion,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    input::check_microversion(version, microversions::before(microversions::NETWORK_PROXIES_GONE))?;
    images.delete(&context, id_of(&id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}
