//! The version document.

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;

use super::{Placement, version};

pub fn routes() -> Router<Placement> {
    Router::new().route("/", get(versions))
}

async fn versions(_: Request) -> Response {
    Json(json!({"versions": [{
        "id": format!("v{}", version::MIN),
        "max_version": version::MAX.to_string(),
        "min_version": version::MIN.to_string(),
        "status": "CURRENT",
        "links": [{"rel": "self", "href": ""}],
    }]}))
    .into_response()
}
