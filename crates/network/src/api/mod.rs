//! HTTP: the version documents, the collections, the quotas.

mod availability;
mod collections;
mod extensions;
mod filters;
mod format;
mod if_match;
mod listing;
mod quotas;
mod renamed_rules;
mod resource_kind;
mod routers;
mod rules;
mod versions;

use axum::Router;
use axum::response::{IntoResponse, Response};
use kilonova_access::{Operation, Routes};
use kilonova_wire::{Dialect, Refusal, Service};
use serde_json::Value;

use crate::Networks;

pub use format::reached_with_suffix;
pub use renamed_rules::RENAMED;
pub use rules::RULES;

fn table() -> Routes<Networks> {
    Routes::new()
        .merge(versions::routes())
        .merge(extensions::routes())
        .merge(quotas::routes())
        .merge(availability::routes())
        .merge(collections::routes())
        .merge(routers::routes())
}

/// The routes, relative to the mount point.
pub fn routes(networks: Networks) -> Router {
    let policy = networks.policy().clone();
    table().behind(&policy).with_state(networks)
}

/// The operations and their rules.
pub fn operations() -> Vec<Operation> {
    table().operations()
}

/// The service description for [`kilonova_wire::mount`].
pub fn service() -> Service {
    Service { name: "network", dialect: Dialect::Network, versions: None, public }
}

fn public(path: &str) -> bool {
    matches!(path.trim_end_matches('/'), "" | "/v2.0")
}

type Answer = Result<Response, Refusal>;

fn ok(body: Value) -> Answer {
    Ok(axum::Json(body).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_of_a_route_exists() {
        assert_eq!(kilonova_access::undefined(&operations(), RULES), Vec::<String>::new());
    }
}
