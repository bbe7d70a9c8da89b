//! `GET /metrics` in Prometheus format: HTTP traffic and the ledger.
//!
//! It names hosts and counts projects' work, so it requires an admin's token, or the token in the file
//! `metrics.token` of the state directory as `Authorization: Bearer`. Counters live as long as the
//! process; everything else is counted at each scrape.

mod contention;
mod http;
mod ledger;
mod logins;
mod logs;
mod statements;

use std::sync::Arc;

use ::http::{HeaderMap, HeaderValue, header};
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use kilonova_compute_app::Compute;
use kilonova_identity::Identity;
use kilonova_store::Store;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Authenticator, Fault, Refusal};
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

pub(super) use http::{Traffic, watch};
pub(super) use statements::Statements;

use crate::state::same;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The sources of `/metrics`.
#[derive(Clone)]
pub(super) struct Metrics {
    traffic: Traffic,
    lasting: Arc<Registry>,
    statements: Statements,
    store: Store,
    compute: Option<Compute>,
    identity: Option<Identity>,
    auth: Arc<dyn Authenticator>,
    token: Arc<str>,
}

impl Metrics {
    pub(super) fn new(
        store: Store,
        compute: Option<Compute>,
        identity: Option<Identity>,
        auth: Arc<dyn Authenticator>,
        token: String,
        statements: Statements,
    ) -> Self {
        let mut lasting = Registry::with_prefix("kilonova");
        let traffic = Traffic::register(&mut lasting);
        let (lasting, token) = (Arc::new(lasting), token.into());
        Self { traffic, lasting, statements, store, compute, identity, auth, token }
    }

    /// The counters for the middleware around each service.
    pub(super) fn traffic(&self) -> Traffic {
        self.traffic.clone()
    }

    pub(super) fn routes(self) -> Router {
        Router::new().route("/metrics", get(show)).with_state(self)
    }

    async fn admits(&self, headers: &HeaderMap) -> bool {
        let bearer = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.strip_prefix("Bearer "));
        if bearer.is_some_and(|given| same(given.trim(), &self.token)) {
            return true;
        }
        headers.contains_key("x-auth-token")
            && self.auth.authenticate(headers).await.is_ok_and(|caller| caller.is_admin())
    }
}

async fn show(State(metrics): State<Metrics>, headers: HeaderMap) -> Result<Response, Fault> {
    if !metrics.admits(&headers).await {
        let refusal = Refusal::unauthorized(
            "Metrics require an admin's X-Auth-Token, or the token in the file metrics.token of the \
                         state directory as Authorization: Bearer.",
        );
        let challenge = HeaderValue::from_static("Bearer");
        return Err(Fault::from(refusal).with_header(header::WWW_AUTHENTICATE, challenge));
    }
    let unreadable = |cause: String| {
        Refusal::new(Kind::Unavailable, "Cannot read the ledger now; try again.")
            .with_internal(cause)
    };
    let mut registry = ledger::count(&metrics.store, metrics.compute.as_ref())
        .await
        .map_err(|error| unreadable(error.to_string()))?;
    metrics.statements.show(&mut registry);
    logs::show(&mut registry);
    contention::show(&mut registry, &metrics.store, metrics.compute.as_ref());
    if let Some(identity) = &metrics.identity {
        logins::show(&mut registry, identity.hash_statistics());
    }
    let mut body = String::new();
    text::encode_registry(&mut body, &metrics.lasting)
        .and_then(|()| text::encode_registry(&mut body, &registry))
        .and_then(|()| text::encode_eof(&mut body))
        .map_err(|error| unreadable(error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], body).into_response())
}
