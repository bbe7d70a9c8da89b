//! HTTP: the version documents, the empty collections, the quotas.

mod collections;
mod quotas;
mod versions;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use kilonova_wire::{Dialect, Fault, Service};
use serde_json::Value;

/// The routes, relative to the mount.
pub fn routes() -> Router {
    Router::new().merge(versions::routes()).merge(quotas::routes()).merge(collections::routes())
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

/// The answer to whoever wants to make or change something.
fn unmanaged() -> Fault {
    Fault::new(
        StatusCode::NOT_IMPLEMENTED,
        "Networks are not managed by this cloud. Create servers with --nic none.",
    )
}
