//! The accelerator API, Cyborg's v2: one file per collection, each with its routes, its request
//! and its view. Paths are relative to the mount.

mod access;
mod arqs;
mod attributes;
mod deployables;
mod devices;
mod negotiation;
mod profiles;
mod request;
mod versions;

use std::sync::Arc;

use axum::Router;
use kilonova_store::Store;
use kilonova_wire::{Dialect, Service};

/// What the handlers share.
#[derive(Clone)]
pub struct State {
    store: Store,
}

impl State {
    /// Over a store that [`crate::MIGRATIONS`] have been applied to.
    pub fn new(store: Store) -> Self {
        Self { store }
    }
}

/// The routes, to be given to [`kilonova_wire::mount()`].
pub fn routes(state: State) -> Router {
    Router::new()
        .merge(versions::routes())
        .merge(devices::routes())
        .merge(deployables::routes())
        .merge(attributes::routes())
        .merge(profiles::routes())
        .merge(arqs::routes())
        .with_state(state)
}

/// What the layers around the routes need to know.
pub fn service() -> Service {
    Service {
        name: "accelerator",
        dialect: Dialect::Accelerator,
        versions: Some(Arc::new(negotiation::Accelerator)),
        public: versions::is_public,
    }
}
