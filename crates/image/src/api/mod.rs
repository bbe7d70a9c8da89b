//! HTTP: one file per resource, each with its routes, requests and views.
//!
//! Links inside bodies begin with `/v2` whatever the mount: clients cut the version off and put
//! their own endpoint before the rest.

mod data;
mod images;
mod listing;
mod rules;
mod schemas;
mod tags;
mod versions;
mod view;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use kilonova_ids::{ImageId, parse_uuid_like};
use kilonova_wire::{Dialect, Fault, Service};

use crate::{Error, Images};

pub use rules::RULES;

/// The routes, relative to the mount.
pub fn routes(images: Images) -> Router {
    Router::new()
        .merge(versions::routes())
        .merge(schemas::routes())
        .merge(listing::routes())
        .merge(images::routes())
        .merge(data::routes())
        .merge(tags::routes())
        .with_state(images)
}

/// What [`kilonova_wire::mount`] needs to know.
pub fn service() -> Service {
    Service { name: "image", dialect: Dialect::Image, versions: None, public }
}

fn public(path: &str) -> bool {
    matches!(path.trim_end_matches('/'), "" | "/v2" | "/versions")
}

type Answer = Result<Response, Fault>;

fn no_content() -> Answer {
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// A path segment as an id. A name is not one: clients try names as ids first.
fn id_of(segment: &str) -> Result<ImageId, Fault> {
    parse_uuid_like(segment)
        .ok_or_else(|| Error::NotFound(segment.escape_debug().to_string()).into())
}
