//! The version documents.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use kilonova_access::{Guard, Routes, get};
use kilonova_wire::Base;
use serde_json::{Value, json};

use crate::Images;

/// The newest minor version.
pub(super) const NEWEST: u32 = 9;

pub(super) fn routes() -> Routes<Images> {
    Routes::new()
        .route("/", [get(Guard::Open, choices)])
        .route("/v2", [get(Guard::Open, choices)])
        .route("/v2/", [get(Guard::Open, choices)])
        .route("/versions", [get(Guard::Open, list)])
}

fn document(base: &Base) -> Value {
    let versions: Vec<Value> = (0..=NEWEST)
        .rev()
        .map(|minor| {
            json!({
                "id": format!("v2.{minor}"),
                "status": if minor == NEWEST { "CURRENT" } else { "SUPPORTED" },
                "links": [{"rel": "self", "href": format!("{}/v2/", base.0)}],
            })
        })
        .collect();
    json!({"versions": versions})
}

async fn choices(base: Base) -> Response {
    (StatusCode::MULTIPLE_CHOICES, axum::Json(document(&base))).into_response()
}

async fn list(base: Base) -> Response {
    axum::Json(document(&base)).into_response()
}
