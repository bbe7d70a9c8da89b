//! The version documents.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use kilonova_access::{Guard, Routes, get};
use kilonova_wire::Base;
use serde_json::{Value, json};

use super::{Answer, ok};
use crate::Identity;

pub(super) fn routes() -> Routes<Identity> {
    Routes::new()
        .route("/", [get(Guard::Open, list)])
        .route("/v3", [get(Guard::Open, show)])
        .route("/v3/", [get(Guard::Open, show)])
}

fn version(base: &Base) -> Value {
    json!({
        "id": "v3.14",
        "status": "stable",
        "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": format!("{}/v3/", base.0)}],
        "media-types": [{
            "base": "application/json",
            "type": "application/vnd.openstack.identity-v3+json",
        }],
    })
}

async fn list(base: Base) -> Response {
    let body = axum::Json(json!({"versions": {"values": [version(&base)]}}));
    let mut response = (StatusCode::MULTIPLE_CHOICES, body).into_response();
    if let Ok(location) = HeaderValue::try_from(format!("{}/v3/", base.0)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

async fn show(base: Base) -> Answer {
    ok(json!({"version": version(&base)}))
}
