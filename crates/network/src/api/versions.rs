//! The version documents of the network API.

use kilonova_access::{Guard, Routes, get};
use kilonova_wire::Base;
use serde_json::json;

use super::{Answer, ok};
use crate::Networks;

pub(super) fn routes() -> Routes<Networks> {
    Routes::new()
        .route("/", [get(Guard::Open, list)])
        .route("/v2.0", [get(Guard::Open, resources)])
        .route("/v2.0/", [get(Guard::Open, resources)])
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
    let resources = ["networks", "subnets", "ports", "routers", "floatingips"].map(resource);
    ok(json!({"resources": resources}))
}
