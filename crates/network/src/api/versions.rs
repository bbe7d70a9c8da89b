//! The version documents.

use axum::Router;
use axum::routing::get;
use kilonova_wire::Base;
use serde_json::json;

use super::{Answer, ok};
use crate::Networks;

pub(super) fn routes() -> Router<Networks> {
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

async fn resources(base: Base) -> Answer {
    let resource = |name: &str| {
        json!({"name": name.trim_end_matches('s'), "collection": name,
            "links": [{"rel": "self", "href": format!("{}/v2.0/{name}", base.0)}]})
    };
    let resources = ["networks", "subnets", "ports"].map(resource);
    ok(json!({"resources": resources}))
}
