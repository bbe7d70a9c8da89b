//! Metrics of HTTP answers: counts by service, method and status, and durations.

use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use http::Method;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Bucket limits in seconds.
const BUCKETS: [f64; 10] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0, 10.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    service: &'static str,
    method: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    service: &'static str,
}

/// Counters of HTTP answers.
#[derive(Debug, Clone)]
pub(in crate::serve) struct Traffic {
    answered: Family<Answered, Counter>,
    seconds: Family<Of, Histogram, fn() -> Histogram>,
}

impl Traffic {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let traffic = Self {
            answered: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
        };
        let (answered, seconds) = (traffic.answered.clone(), traffic.seconds.clone());
        registry.register("http_requests", "Answered requests", answered);
        registry.register("http_request_seconds", "Time from request to answer", seconds);
        traffic
    }
}

/// Counts the answers of `routes` as `service`.
pub(in crate::serve) fn watch(routes: Router, service: &'static str, traffic: Traffic) -> Router {
    routes.layer(middleware::from_fn_with_state((service, traffic), count))
}

async fn count(
    State((service, traffic)): State<(&'static str, Traffic)>,
    request: Request,
    next: Next,
) -> Response {
    let begun = Instant::now();
    let method = name(request.method());
    let response = next.run(request).await;
    let status = response.status().as_u16();
    traffic.answered.get_or_create(&Answered { service, method, status }).inc();
    traffic.seconds.get_or_create(&Of { service }).observe(begun.elapsed().as_secs_f64());
    response
}

/// The method's label; unknown methods share one, so that callers cannot create labels.
fn name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::PATCH => "PATCH",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}
