//! The HTTP face: one module per resource, merged here.

mod flavors;
mod input;
mod links;
mod negotiation;
mod servers;
mod versions;

use std::sync::Arc;

use axum::Router;
use kilonova_wire::{Dialect, Service};

use crate::Compute;

/// All routes, relative to the mount.
pub fn routes(state: Compute) -> Router {
    Router::new()
        .merge(versions::routes())
        .merge(flavors::routes())
        .merge(servers::routes())
        .with_state(state)
}

/// What the layers around the routes need to know.
pub fn service() -> Service {
    Service {
        name: "compute",
        dialect: Dialect::Compute,
        versions: Some(Arc::new(negotiation::Negotiation)),
        public: versions::is_public,
    }
}
