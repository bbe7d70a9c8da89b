//! HTTP handlers: one file per resource, with its routes, requests and views.
//!
//! Links inside bodies begin with `/v2` regardless of the mount point: clients strip the version and
//! prepend their own endpoint.

mod actions;
mod data;
mod images;
mod listing;
mod members;
mod metadefs;
mod minor;
mod rules;
mod schemas;
mod tags;
mod tasks;
mod versions;
mod view;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use kilonova_access::{Operation, Routes};
use kilonova_ids::{ImageId, parse_uuid_like};
use kilonova_wire::{Dialect, Refusal, Service};

use crate::{Error, Images};

pub use minor::reached_by_minor_version;
pub use rules::RULES;

fn table() -> Routes<Images> {
    Routes::new()
        .merge(versions::routes())
        .merge(schemas::routes())
        .merge(listing::routes())
        .merge(images::routes())
        .merge(data::routes())
        .merge(tags::routes())
        .merge(members::routes())
        .merge(actions::routes())
        .merge(tasks::routes())
        .merge(metadefs::routes())
}

/// The routes, relative to the mount point.
pub fn routes(images: Images) -> Router {
    let policy = images.policy().clone();
    table().behind(&policy).with_state(images)
}

/// The operations and their rules.
pub fn operations() -> Vec<Operation> {
    table().operations()
}

/// The service description for [`kilonova_wire::mount`].
pub fn service() -> Service {
    Service { name: "image", dialect: Dialect::Image, versions: None, public }
}

fn public(path: &str) -> bool {
    matches!(path.trim_end_matches('/'), "" | "/v2" | "/versions")
}

type Answer = Result<Response, Refusal>;

fn no_content() -> Answer {
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Parses a path segment as an id. A name is a 404: clients try names as ids first.
fn id_of(segment: &str) -> Result<ImageId, Refusal> {
    parse_uuid_like(segment)
        .ok_or_else(|| Error::NotFound(segment.escape_debug().to_string()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_rule_that_exists() {
        assert_eq!(kilonova_access::undefined(&operations(), RULES), Vec::<String>::new());
    }
}
