//! The HTTP face: one module per resource, merged here.

mod aggregates;
mod availability_zones;
mod extensions;
mod external_events;
mod flavors;
mod hypervisors;
mod images;
mod input;
mod keypairs;
mod limits;
mod links;
mod migrations;
mod negotiation;
pub mod nodes;
mod operators;
mod quota_classes;
mod quota_limits;
mod quotas;
mod removed;
mod server_groups;
mod servers;
mod services;
mod tenant_usage;
mod versions;

use std::sync::Arc;

use axum::Router;
use kilonova_access::{Operation, Routes};
use kilonova_wire::{Dialect, Microversion, Service};

use crate::{Compute, microversions};

pub use crate::app::rules::RULES;

/// All routes, relative to the mount, behind the policy.
pub fn routes(state: Compute) -> Router {
    let policy = state.policy.clone();
    let images = state.images.clone();
    let mut current = table().behind(&policy).with_state(state);
    if let Some(images) = images {
        let proxy = images::routes().behind(images.policy()).with_state(images);
        current = current.merge(proxy);
    }
    versions::legacy(current.clone()).merge(current)
}

/// All that can be asked, and what decides over it.
pub fn operations() -> Vec<Operation> {
    table().operations()
}

/// The operations of the proxy of the image service, whose rules decide over them.
pub fn image_operations() -> Vec<Operation> {
    images::routes().operations()
}

fn table() -> Routes<Compute> {
    Routes::new()
        .merge(versions::routes())
        .merge(flavors::routes())
        .merge(keypairs::routes())
        .merge(hypervisors::routes())
        .merge(services::routes())
        .merge(migrations::routes())
        .merge(aggregates::routes())
        .merge(availability_zones::routes())
        .merge(limits::routes())
        .merge(quotas::routes())
        .merge(quota_classes::routes())
        .merge(extensions::routes())
        .merge(server_groups::routes())
        .merge(external_events::routes())
        .merge(tenant_usage::routes())
        .merge(operators::routes())
        .merge(removed::routes())
        .merge(servers::routes())
}

/// What the layers around the routes need to know.
pub fn service() -> Service {
    service_up_to(microversions::MAX)
}

/// [`service`] with another newest microversion, which [`crate::Options::newest_microversion`] names too.
pub fn service_up_to(newest: Microversion) -> Service {
    Service {
        name: "compute",
        dialect: Dialect::Compute,
        versions: Some(Arc::new(negotiation::Negotiation { newest })),
        public: versions::is_public,
    }
}
