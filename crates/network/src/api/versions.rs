//! The version documents.

use axum::Router;
use axum::routing::get;
use kilonova_wire::Base;
use serde_json::json;

use super::{Answer, ok};

pub(super) fn routes() -> Router {
    Router::new()
        .route("/", get(list))
        .route("/v2.0", get(resources))
        .route("/v2.0/", get(resources))
}

async fn list(base: Base) -> Answer {
    ok(json!({"versions": [{
        "id": "v2.0",
        "status": "CURRENT",
        "links": [{"rel": "self", "href": format!("{}/v2.0/", base.0)}],
    }]}))
}

async fn resources() -> Answer {
    ok(json!({"resources": []}))
}
