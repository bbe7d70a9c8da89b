//! HTTP: one file per resource, each with its routes, requests and views.
//!
//! Links inside bodies begin with `/v2` whatever the mount: clients cut the version off and put
//! their own endpoint before the rest.

mod actions;
mod data;
mod images;
mod listing;
mod members;
mod metadefs;
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
use kilonova_wire::{Dialect, Fault, Service};

use crate::{Error, Images};

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

/// The routes, relative to the mount.
pub fn routes(images: Images) -> Router {
    let policy = images.policy().clone();
    table().behind(&policy).with_state(images)
}

/// All that can be asked here, with the rules that decide.
pub fn operations() -> Vec<Operation> {
    table().operations()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_rule_that_exists() {
        assert_eq!(kilonova_access::undefined(&operations(), RULES), Vec::<String>::new());
    }
}
