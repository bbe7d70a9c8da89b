//! One port: each service below its name, and `GET /` lists them. A single service also answers at the
//! root, like upstream's, and compute also answers at `/v2.1` and `/v2`, because operators' catalogs and
//! other services contain `http://HOST:8774/v2.1`. The health of the process is at the root, without
//! authentication.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router, middleware};
use http::{HeaderMap, Method};
use kilonova_compute_app::Compute;
use kilonova_compute_app::managed_consumers::Servers;
use kilonova_enroll::Enrollment;
use kilonova_network::Networks;
use kilonova_wire::noauth::NoAuth;
use kilonova_wire::{Base, Dialect, Refusal, Service, mount};
use serde_json::json;
use tower::{ServiceExt, service_fn};
use tower_http::catch_panic::CatchPanicLayer;

use super::cors;
use super::health::Health;
use super::metrics::{Metrics, watch};
use super::services::Services;
use super::unsent::{self, Unsent};
use crate::config::{ServiceName, Settings};

pub(super) fn build(
    settings: &Settings,
    services: Services,
    metrics: Metrics,
    health: &Health,
    enrollment: Option<Enrollment>,
) -> Router {
    let traffic = metrics.traffic();
    let unsent = Unsent::new(settings.front.proxies.clone());
    let mounted = |service: ServiceName, prefix: &str| {
        let routes = mounted(service, settings, &services, prefix, enrollment.clone(), &unsent);
        let routes = watch(routes, service.as_str(), traffic.clone());
        match service {
            ServiceName::Compute => kilonova_compute::reached_in_project(routes),
            ServiceName::Network => kilonova_network::reached_with_suffix(routes),
            ServiceName::Image => kilonova_image::reached_by_minor_version(routes),
            ServiceName::Identity | ServiceName::Placement | ServiceName::Accelerator => routes,
        }
    };
    let below = |service: ServiceName| format!("/{}", service.as_str());
    let mut router = Router::new();
    for service in &settings.services {
        router = router.nest(&below(*service), mounted(*service, &below(*service)));
    }
    // Without the compute API, enrollment is still offered at its path.
    if !settings.runs(ServiceName::Compute) && enrollment.is_some() {
        let policy = settings.policies.enforcer(ServiceName::Compute);
        let operators = guarded(kilonova_enroll::operator_routes(enrollment.clone(), &policy));
        let prefix = below(ServiceName::Compute);
        let (service, auth) = (kilonova_compute::service(), services.auth.clone());
        router = router.nest(&prefix, mount(operators, service, &prefix, auth));
    }
    let open = |routes: Router, name| {
        let auth = services.auth.clone();
        let dialect = Dialect::Identity;
        mount(
            guarded(routes),
            Service { name, dialect, versions: None, public: |_| true },
            "",
            auth,
        )
    };
    if let Some(compute) = services.compute.clone().filter(|_| settings.runs(ServiceName::Compute))
    {
        let consoles = kilonova_compute::api::consoles::routes(compute);
        let auth = services.auth.clone();
        let mounted = mount(guarded(consoles), console_service(), "/console", auth);
        router = router.nest("/console", mounted);
    }
    let metrics = open(metrics.routes(), "metrics").into_service::<axum::body::Body>();
    router = router.route_service("/metrics", metrics);
    let router = match settings.services.as_slice() {
        [only] => router.fallback_service(mounted(*only, "")),
        several => {
            let entry = |s: &ServiceName| json!({"service": s.as_str(), "path": below(*s)});
            let listing = several.iter().map(entry).collect::<Vec<_>>();
            let compute = services.compute.clone().filter(|_| settings.runs(ServiceName::Compute));
            // With an external Keystone, compute replaces Nova and the root is exactly Nova's document: tempest
            // refuses additional keys.
            let is_nova = compute.is_some() && settings.keystone.is_some();
            let listing = match is_nova {
                true => json!({}),
                false => json!({"name": "kilonova", "services": listing}),
            };
            let pages = settings.dashboard;
            let root = get(move |base: Base, method: Method, headers: HeaderMap| async move {
                if pages && kilonova_dashboard::asks_for_pages(&method, &headers) {
                    return kilonova_dashboard::to_pages();
                }
                let mut listing = listing;
                if let Some(compute) = &compute {
                    listing["versions"] = kilonova_compute::version_documents(&base, compute);
                }
                Json(listing).into_response()
            });
            let root = open(Router::new().route("/", root), "root");
            if settings.runs(ServiceName::Compute) {
                router.fallback_service(by_version(mounted(ServiceName::Compute, ""), root))
            } else {
                router.fallback_service(root)
            }
        }
    };
    cors::around(router.merge(health.routes()), settings.cors.clone())
}

/// The routes of consoles on a separate listener.
pub(super) fn consoles_at_root(compute: Compute) -> Router {
    let routes = kilonova_compute::api::consoles::routes_at_root(compute);
    mount(guarded(routes), console_service(), "", Arc::new(NoAuth))
}

fn console_service() -> Service {
    Service { name: "consoles", dialect: Dialect::Compute, versions: None, public: |_| true }
}

/// Routes `/v2.1`, `/v2` and the paths below them to compute, and the rest to `other`. A route with a
/// wildcard would add its parameter to those of compute's own paths.
fn by_version(
    compute: Router,
    other: Router,
) -> impl tower::Service<
    Request,
    Response = Response,
    Error = Infallible,
    Future = impl Future<Output = Result<Response, Infallible>> + Send,
> + Clone
+ Send
+ Sync
+ 'static {
    service_fn(move |request: Request| {
        let first = request.uri().path().split('/').nth(1);
        let router = if matches!(first, Some("v2.1" | "v2")) { &compute } else { &other };
        router.clone().oneshot(request)
    })
}

/// Answers and logs panics like any other fault.
fn guarded(routes: Router) -> Router {
    routes.layer(CatchPanicLayer::custom(|panic: Box<dyn std::any::Any + Send>| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let cause = format!("a panic: {}", text.unwrap_or("without a text"));
        Refusal::internal(cause).into_response()
    }))
}

fn mounted(
    service: ServiceName,
    settings: &Settings,
    services: &Services,
    prefix: &str,
    enrollment: Option<Enrollment>,
    unsent: &Unsent,
) -> Router {
    let auth = services.auth.clone();
    let put = |routes: Router, service| {
        let routes = routes.layer(middleware::from_fn_with_state(unsent.clone(), unsent::bound));
        mount(guarded(routes), service, prefix, auth)
    };
    match service {
        ServiceName::Identity => match &services.identity {
            Some(identity) => {
                put(kilonova_identity::routes(identity.clone()), kilonova_identity::service())
            }
            None => Router::new(),
        },
        ServiceName::Compute => match &services.compute {
            Some(compute) => {
                let operators = kilonova_enroll::operator_routes(enrollment, &compute.policy);
                let routes = kilonova_compute::routes(compute.clone()).merge(operators);
                put(routes, kilonova_compute::service())
            }
            None => Router::new(),
        },
        ServiceName::Image => match &services.images {
            Some(images) => put(kilonova_image::routes(images.clone()), kilonova_image::service()),
            None => Router::new(),
        },
        ServiceName::Placement => {
            let (store, world) = (services.store.clone(), services.world.clone());
            let policy = settings.policies.of(service);
            // Servers are rows of the same database, even if compute runs in another process.
            let manager = Some(Arc::new(Servers::new(services.compute.clone())) as _);
            let placement = kilonova_placement::Placement { store, world, policy, manager };
            put(kilonova_placement::routes(placement), kilonova_placement::service())
        }
        ServiceName::Accelerator => put(
            kilonova_accelerator::routes(services.accelerator.clone()),
            kilonova_accelerator::service(),
        ),
        ServiceName::Network => {
            let store = services.store.clone();
            let networks = Networks::with_options(store, settings.network.clone())
                .with_policy(settings.policies.enforcer(service));
            put(kilonova_network::routes(networks), kilonova_network::service())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use http_body_util::BodyExt;

    use super::*;

    async fn broken() -> &'static str {
        panic!("the cause, for the log only")
    }

    #[tokio::test]
    async fn a_panic_is_answered_as_a_fault_without_its_cause() {
        let service =
            Service { name: "t", dialect: Dialect::Compute, versions: None, public: |_| true };
        let routes = guarded(Router::new().route("/", get(broken)));
        let router = mount(routes, service, "", Arc::new(NoAuth));
        let request = http::Request::get("/").body(Body::empty()).expect("the request is valid");
        let answer = router.oneshot(request).await.expect("an answer arrives");
        assert_eq!(answer.status(), 500);
        assert!(answer.headers().contains_key("x-openstack-request-id"));
        let body = answer.into_body().collect().await.expect("the body arrives").to_bytes();
        let text = String::from_utf8_lossy(&body);
        assert!(text.contains("computeFault") && !text.contains("the cause"), "{text}");
    }
}
