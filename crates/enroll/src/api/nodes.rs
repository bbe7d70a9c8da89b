//! The routes for hosts, below `/node`.
//!
//! ```text
//! POST /v1/join                         Join    -> Credential; no certificate is needed
//! POST /v1/hosts/{host}/certificate     Renewal -> Credential
//! GET  /v1/hosts/{host}/authorities     -> Authorities; ?has=DIGEST of the trusted ones
//! GET  /v1/revocations                  -> Revocations
//! ```

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use kilonova_ids::HostName;
use kilonova_node_api::{Authorities, Credential, Join, Renewal, Revocations};
use kilonova_wire::certified_host::only_itself;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Body, CertifiedHost, Refusal};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::Enrollment;
use crate::app::{issue, revocations, trust};

/// The hexadecimal serial number of a connection's client certificate. The listener adds it to each
/// request in addition to [`CertifiedHost`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presented(pub Arc<str>);

/// The routes for hosts with a certificate, and for hosts that join.
pub fn node_routes(enrollment: Enrollment) -> Router {
    Router::new()
        .route("/v1/join", post(join))
        .route("/v1/hosts/{host}/certificate", post(renew))
        .route("/v1/hosts/{host}/authorities", get(authorities))
        .route("/v1/revocations", get(revocations))
        .route_layer(axum::middleware::from_fn(only_itself))
        .with_state(enrollment)
}

async fn join(
    State(enrollment): State<Enrollment>,
    Body(bytes): Body,
) -> Result<Json<Credential>, Refusal> {
    let join: Join = message(&bytes)?;
    Ok(Json(issue::join(&enrollment, join).await?))
}

async fn revocations(
    State(enrollment): State<Enrollment>,
    certified: Option<Extension<CertifiedHost>>,
) -> Result<Json<Revocations>, Refusal> {
    if certified.is_none() {
        return Err(Refusal::unauthorized("This API is only for hosts that have joined."));
    }
    Ok(Json(revocations::current(&enrollment)?))
}

#[derive(Deserialize)]
struct Trusted {
    #[serde(default)]
    has: Option<String>,
}

async fn authorities(
    State(enrollment): State<Enrollment>,
    certified: Option<Extension<CertifiedHost>>,
    Path(host): Path<HostName>,
    Query(Trusted { has }): Query<Trusted>,
) -> Result<Json<Authorities>, Refusal> {
    let Some(Extension(certified)) = certified else {
        return Err(Refusal::unauthorized("This API is only for hosts that have joined."));
    };
    certified.check(&host)?;
    let is_digest = |text: &String| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    if has.as_ref().is_some_and(|text| !is_digest(text)) {
        return Err(Refusal::bad_request("has is not a SHA-256 of 64 hexadecimal digits."));
    }
    Ok(Json(trust::current(&enrollment, host, has).await?))
}

async fn renew(
    State(enrollment): State<Enrollment>,
    certified: Option<Extension<CertifiedHost>>,
    presented: Option<Extension<Presented>>,
    Path(host): Path<HostName>,
    Body(bytes): Body,
) -> Result<Json<Credential>, Refusal> {
    let (Some(Extension(certified)), Some(Extension(Presented(serial)))) = (certified, presented)
    else {
        return Err(Refusal::unauthorized("Renewal requires the current certificate."));
    };
    certified.check(&host)?;
    let renewal: Renewal = message(&bytes)?;
    Ok(Json(issue::renew(&enrollment, &host, &serial, &renewal).await?))
}

fn message<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(bytes)
        .map_err(|error| Refusal::new(Kind::Unprocessable, format!("Invalid message: {error}")))
}
