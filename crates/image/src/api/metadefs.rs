//! Metadata definitions: always empty and read-only. Clients and dashboards expect the lists to
//! exist.

use axum::extract::Path;
use axum::response::IntoResponse as _;
use kilonova_access::{Routes, get};
use kilonova_wire::{Context, Refusal};
use serde_json::json;

use super::Answer;
use crate::Images;

pub(super) fn routes() -> Routes<Images> {
    const ONE: &str = "get_metadef_namespace";
    let mut routes = Routes::new()
        .route("/v2/metadefs/namespaces", [get("get_metadef_namespaces", namespaces)])
        .route("/v2/metadefs/resource_types", [get("list_metadef_resource_types", resource_types)])
        .route("/v2/metadefs/namespaces/{namespace}", [get(ONE, unknown)]);
    for (below, rule) in [
        ("objects", "get_metadef_objects"),
        ("properties", "get_metadef_properties"),
        ("tags", "get_metadef_tags"),
        ("resource_types", "get_metadef_resource_type"),
    ] {
        let path = format!("/v2/metadefs/namespaces/{{namespace}}/{below}");
        routes = routes.route(path, [get(rule, unknown)]);
    }
    routes
}

async fn namespaces(_: Context) -> Answer {
    let body = json!({
        "namespaces": [],
        "first": "/v2/metadefs/namespaces",
        "schema": "/v2/schemas/metadefs/namespaces",
    });
    Ok(axum::Json(body).into_response())
}

async fn resource_types(_: Context) -> Answer {
    Ok(axum::Json(json!({"resource_types": []})).into_response())
}

async fn unknown(_: Context, Path(namespace): Path<String>) -> Answer {
    let namespace = namespace.escape_debug();
    Err(Refusal::not_found(format!("Metadata definition namespace={namespace} was not found.")))
}
