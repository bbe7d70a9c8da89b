//! One port: each service below its name, `GET /` to list them. One service alone also answers at
//! the root, as upstream's does.

use std::sync::Arc;

use axum::routing::get;
use axum::{Json, Router};
use kilonova_wire::mount;
use serde_json::json;
use tower_http::catch_panic::CatchPanicLayer;

use super::cors;
use super::metrics::{Metrics, watch};
use super::services::Services;
use crate::config::{ServiceName, Settings};

pub(super) fn build(settings: &Settings, services: Services, metrics: Metrics) -> Router {
    let traffic = metrics.traffic();
    let mounted = |service: ServiceName, prefix: &str| {
        watch(mounted(service, settings, &services, prefix), service.as_str(), traffic.clone())
    };
    let router = match settings.services.as_slice() {
        [only] => {
            let prefix = format!("/{}", only.as_str());
            let below = mounted(*only, &prefix);
            let at_root = mounted(*only, "");
            Router::new().nest(&prefix, below).fallback_service(at_root)
        }
        several => {
            let mut router = Router::new();
            let mut listing = Vec::new();
            for service in several {
                let prefix = format!("/{}", service.as_str());
                router = router.nest(&prefix, mounted(*service, &prefix));
                listing.push(json!({"service": service.as_str(), "path": prefix}));
            }
            let listing = json!({"name": "kilonova", "services": listing});
            router.route("/", get(move || async move { Json(listing) }))
        }
    };
    let router = router.merge(metrics.routes()).layer(CatchPanicLayer::new());
    cors::around(router, settings.cors.clone())
}

fn mounted(
    service: ServiceName,
    settings: &Settings,
    services: &Services,
    prefix: &str,
) -> Router {
    let auth = services.auth.clone();
    let put = |routes: Router, service| mount(routes, service, prefix, auth);
    match service {
        ServiceName::Identity => match &services.identity {
            Some(identity) => {
                put(kilonova_identity::routes(identity.clone()), kilonova_identity::service())
            }
            None => Router::new(),
        },
        ServiceName::Compute => match &services.compute {
            Some(compute) => {
                put(kilonova_compute::routes(compute.clone()), kilonova_compute::service())
            }
            None => Router::new(),
        },
        ServiceName::Image => match &services.images {
            Some(images) => put(kilonova_image::routes(images.clone()), kilonova_image::service()),
            None => Router::new(),
        },
        ServiceName::Placement => {
            let (store, world) = (services.store.clone(), services.world.clone());
            let policy = Arc::clone(&settings.policy);
            let placement = kilonova_placement::Placement { store, world, policy };
            put(kilonova_placement::routes(placement), kilonova_placement::service())
        }
        ServiceName::Accelerator => put(
            kilonova_accelerator::routes(kilonova_accelerator::State::new(services.store.clone())),
            kilonova_accelerator::service(),
        ),
        ServiceName::Network => put(kilonova_network::routes(), kilonova_network::service()),
    }
}
