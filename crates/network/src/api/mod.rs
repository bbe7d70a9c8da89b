//! HTTP: the version documents, the collections, the quotas.

mod availability;
mod collections;
mod extensions;
mod kinds;
mod listing;
mod quotas;
mod rules;
mod versions;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use kilonova_access::{Operation, Routes};
use kilonova_wire::{Dialect, Fault, Service};
use serde_json::Value;

use crate::Networks;

pub use rules::RULES;

fn table() -> Routes<Networks> {
    Routes::new()
        .merge(versions::routes())
        .merge(extensions::routes())
        .merge(quotas::routes())
        .merge(availability::routes())
        .merge(collections::routes())
}

/// The routes, relative to the mount.
pub fn routes(networks: Networks) -> Router {
    let policy = networks.policy().clone();
    table().behind(&policy).with_state(networks)
}

/// What can be asked, and which rules decide over it.
pub fn operations() -> Vec<Operation> {
    table().operations()
}

/// What [`kilonova_wire::mount`] needs to know.
pub fn service() -> Service {
    Service { name: "network", dialect: Dialect::Network, versions: None, public }
}

fn public(path: &str) -> bool {
    matches!(path.trim_end_matches('/'), "" | "/v2.0")
}

type Answer = Result<Response, Fault>;

fn ok(body: Value) -> Answer {
    Ok(axum::Json(body).into_response())
}

/// The answer to whoever wants to make what is not managed here.
fn unmanaged() -> Fault {
    Fault::new(
        StatusCode::NOT_IMPLEMENTED,
        "This cloud manages networks, subnets, ports and security groups, and nothing else of Neutron.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_of_a_route_exists() {
        assert_eq!(kilonova_access::undefined(&operations(), RULES), Vec::<String>::new());
    }
}
