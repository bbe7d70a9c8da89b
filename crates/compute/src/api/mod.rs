//! The HTTP API: one module per resource, merged here.

mod aggregates;
mod availability_zones;
mod console_auth_tokens;
pub mod consoles;
mod extensions;
mod external_events;
mod flavors;
mod hosts;
mod hypervisors;
mod images;
mod in_project;
mod input;
mod keypairs;
mod limits;
mod links;
pub mod metadata_service;
mod migrations;
mod negotiation;
mod operators;
mod quota_classes;
mod quota_limits;
mod quotas;
mod removed;
mod security_groups;
mod server_groups;
mod servers;
mod services;
mod tenant_usage;
mod versions;
mod volumes_boot;

use std::sync::Arc;

use axum::Router;
pub use in_project::reached_in_project;
use kilonova_access::{Operation, Routes};
use kilonova_compute_app::images::ImageService;
use kilonova_compute_app::{Compute, microversions};
use kilonova_wire::{Dialect, Microversion, Service};
pub use versions::version_documents;

/// All routes, relative to the path at which the service is mounted. The policy guards each of them.
pub fn routes(state: Compute) -> Router {
    let policy = state.policy.clone();
    let images = state.images.clone();
    let mut current = table().behind(&policy).with_state(state);
    let proxy = match &images {
        ImageService::Elsewhere => None,
        ImageService::Own(own) => Some(images::routes(true).behind(own.policy())),
        // An external Glance enforces its own policy, so the proxy applies no image policy.
        ImageService::Glance(_) => Some(images::routes(false).behind(&policy)),
    };
    if let Some(proxy) = proxy {
        current = current.merge(proxy.with_state(images));
    }
    let current = volumes_boot::alias(current.clone()).merge(current);
    let all = versions::legacy(current.clone()).merge(current);
    all.layer(axum::middleware::from_fn(in_project::check))
}

/// The route template as callers see it. The routes of [`versions::legacy`] and [`volumes_boot::alias`] are those of
/// `/v2.1` and `/v2.1/servers`, nested below another path; this function removes the nesting.
fn shown(template: &str) -> String {
    let template = template.replacen("/v2/v2.1", "/v2", 1);
    template.replacen("/os-volumes_boot/v2.1/servers", "/os-volumes_boot", 1)
}

/// All operations of the API, each with its policy rule.
pub fn operations() -> Vec<Operation> {
    table().operations()
}

/// The operations of the image proxy, guarded by the image service's policy.
pub fn image_operations() -> Vec<Operation> {
    images::routes(true).operations()
}

fn table() -> Routes<Compute> {
    Routes::new()
        .merge(versions::routes())
        .merge(flavors::routes())
        .merge(keypairs::routes())
        .merge(hypervisors::routes())
        .merge(services::routes())
        .merge(hosts::routes())
        .merge(migrations::routes())
        .merge(aggregates::routes())
        .merge(availability_zones::routes())
        .merge(console_auth_tokens::routes())
        .merge(limits::routes())
        .merge(quotas::routes())
        .merge(quota_classes::routes())
        .merge(extensions::routes())
        .merge(server_groups::routes())
        .merge(external_events::routes())
        .merge(tenant_usage::routes())
        .merge(operators::routes())
        .merge(removed::routes())
        .merge(security_groups::routes())
        .merge(servers::routes())
}

/// The description of the service for the middleware around the routes.
pub fn service() -> Service {
    service_up_to(microversions::MAX)
}

/// [`service`] with another newest microversion. Callers must set
/// [`kilonova_compute_app::Options::newest_microversion`] to the same value.
pub fn service_up_to(newest: Microversion) -> Service {
    Service {
        name: "compute",
        dialect: Dialect::Compute,
        versions: Some(Arc::new(negotiation::Negotiation { newest })),
        public: versions::is_public,
    }
}

#[cfg(test)]
mod tests {
    use kilonova_compute_app::RULES;

    use super::operations;

    #[test]
    fn every_operation_has_a_known_rule() {
        assert_eq!(kilonova_access::undefined(&operations(), RULES), [""; 0]);
    }
}
