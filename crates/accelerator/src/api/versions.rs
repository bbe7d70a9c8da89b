//! The version documents at `/` and `/v2`, which need no token. Clients follow their links to find
//! the service.

use axum::Json;
use kilonova_access::{Guard, Routes, get};
use kilonova_wire::Base;
use serde_json::{Value, json};

use super::State;

/// True if a path, relative to the mount point, needs no token.
pub(super) fn is_public(path: &str) -> bool {
    matches!(path, "" | "/" | "/v2" | "/v2/")
}

pub(super) fn routes() -> Routes<State> {
    Routes::new()
        .route("/", [get(Guard::Open, root)])
        .route("/v2", [get(Guard::Open, v2)])
        .route("/v2/", [get(Guard::Open, v2)])
}

async fn root(Base(base): Base) -> Json<Value> {
    let version = json!({
        "id": "v2",
        "status": "CURRENT",
        "min_version": "2.0",
        "max_version": "2.3",
        "links": [{"rel": "self", "href": format!("{base}/v2")}],
    });
    Json(json!({
        "name": "OpenStack Cyborg API",
        "description": "The accelerator API of Kilonova, compatible with OpenStack Cyborg.",
        "versions": [version],
        "default_version": version,
    }))
}

async fn v2(Base(base): Base) -> Json<Value> {
    Json(json!({
        "id": "v2.0",
        "status": "CURRENT",
        "min_version": "2.0",
        "max_version": "2.3",
        "links": [{"rel": "self", "href": format!("{base}/v2/")}],
    }))
}
