//! `GET /` and `GET /v2.1`: what clients read before they have a token.

use axum::Json;
use axum::extract::Path;
use kilonova_access::{Guard, Routes, get};
use kilonova_wire::{Base, Fault};
use serde_json::{Value, json};

use super::negotiation::{MAX, MIN};
use crate::Compute;

/// Paths that need no token.
pub fn is_public(path: &str) -> bool {
    matches!(path, "" | "/" | "/v2.1" | "/v2.1/")
}

pub(super) fn routes() -> Routes<Compute> {
    Routes::new()
        .route("/", [get(Guard::Open, list)])
        .route("/v2.1", [get(Guard::Open, show)])
        .route("/v2.1/", [get(Guard::Open, show)])
        .route("/v2.1/versions/{id}", [get(Guard::Anyone, by_id)])
}

fn document(base: &Base) -> Value {
    json!({
        "id": "v2.1",
        "status": "CURRENT",
        "version": MAX.to_string(),
        "min_version": MIN.to_string(),
        "updated": "2013-07-23T11:33:21Z",
        "links": [{"rel": "self", "href": format!("{}/v2.1/", base.0)}],
    })
}

async fn list(base: Base) -> Json<Value> {
    Json(json!({"versions": [document(&base)]}))
}

async fn by_id(base: Base, Path(id): Path<String>) -> Result<Json<Value>, Fault> {
    if id == "v2.1" {
        return Ok(show(base).await);
    }
    Err(Fault::not_found("The resource could not be found."))
}

async fn show(base: Base) -> Json<Value> {
    let mut version = document(&base);
    version["media-types"] = json!([{
        "base": "application/json",
        "type": "application/vnd.openstack.compute+json;version=2.1",
    }]);
    Json(json!({"version": version}))
}
