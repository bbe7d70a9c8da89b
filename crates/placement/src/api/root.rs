//! The version document.

use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use kilonova_wire::Microversion;
use serde_json::json;

use super::call::{dated, only};
use super::{Placement, version};

pub fn routes() -> Router<Placement> {
    Router::new().route("/", only("GET", get(versions)))
}

async fn versions(asked: Microversion) -> Response {
    let mut response = Json(json!({"versions": [{
        "id": format!("v{}", version::MIN),
        "max_version": version::MAX.to_string(),
        "min_version": version::MIN.to_string(),
        "status": "CURRENT",
        "links": [{"rel": "self", "href": ""}],
    }]}))
    .into_response();
    dated(asked, &mut response, None);
    response
}
