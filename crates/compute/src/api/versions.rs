//! `GET /` and `GET /v2.1`: the version documents, which clients read before they have a token.

use axum::extract::{Path, Request, State};
use axum::response::IntoResponse;
use axum::{Json, Router};
use kilonova_access::{Guard, Routes, get};
use kilonova_compute_app::Compute;
use kilonova_compute_app::microversions::MIN;
use kilonova_wire::{Base, Fault, Refusal};
use serde_json::{Value, json};
use tower::{ServiceExt, service_fn};

/// True for a path that needs no token.
pub fn is_public(path: &str) -> bool {
    matches!(path, "" | "/" | "/v2.1" | "/v2.1/" | "/v2" | "/v2/")
}

pub(super) fn routes() -> Routes<Compute> {
    Routes::new()
        .route("/", [get(Guard::Open, list)])
        .route("/v2.1", [get(Guard::Open, show)])
        .route("/v2.1/", [get(Guard::Open, show)])
        .route("/v2.1/versions/{id}", [get(Guard::Anyone, by_id)])
        .route(OLD, [get(Guard::Open, show_old)])
}

/// The path of the version document of v2.0, for [`legacy`].
const OLD: &str = "/versions/v2.0";

/// Serves `/v2/…` like `/v2.1/…`, with the same policy. The microversion is always the oldest one,
/// regardless of the headers.
pub(super) fn legacy(current: Router) -> Router {
    // The mount's own fallback does not reach paths below `/v2`.
    let current = current.fallback(|| async {
        Fault::from(Refusal::not_found("The resource could not be found.")).unrouted()
    });
    let current = kilonova_wire::mount::log_nested_routes(current, super::shown);
    let old = service_fn(move |mut request: Request| {
        let current = current.clone();
        async move {
            let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
            let path = match path {
                "" | "/" => OLD.to_owned(),
                path => format!("/v2.1{path}"),
            };
            match path.parse() {
                Ok(uri) => *request.uri_mut() = uri,
                Err(error) => return Ok(Refusal::internal(error).into_response()),
            }
            request.extensions_mut().insert(MIN);
            current.oneshot(request).await
        }
    });
    Router::new().nest_service("/v2", old)
}

/// The version document of v2.0, for clients that know only this version.
fn old(base: &Base) -> Value {
    json!({
        "id": "v2.0",
        "status": "DEPRECATED",
        "version": "",
        "min_version": "",
        "updated": "2025-07-04T12:00:00Z",
        "links": [{"rel": "self", "href": format!("{}/v2/", base.0)}],
    })
}

async fn show_old(base: Base) -> Json<Value> {
    alone(old(&base), "application/vnd.openstack.compute+json;version=2")
}

/// The answer that describes one version. Unlike the list of versions, it links to the documentation
/// and names the media type (upstream's `nova/api/openstack/compute/versions.py`).
fn alone(mut version: Value, media_type: &str) -> Json<Value> {
    if let Some(links) = version["links"].as_array_mut() {
        links.push(json!({
            "rel": "describedby", "type": "text/html", "href": "http://docs.openstack.org/",
        }));
    }
    version["media-types"] = json!([{"base": "application/json", "type": media_type}]);
    Json(json!({"version": version}))
}

fn document(base: &Base, compute: &Compute) -> Value {
    json!({
        "id": "v2.1",
        "status": "CURRENT",
        "version": compute.options.newest_microversion.to_string(),
        "min_version": MIN.to_string(),
        "updated": "2013-07-23T11:33:21Z",
        "links": [{"rel": "self", "href": format!("{}/v2.1/", base.0)}],
    })
}

/// The version documents, with links below the address that the request used.
pub fn version_documents(base: &Base, compute: &Compute) -> Value {
    json!([old(base), document(base, compute)])
}

async fn list(State(compute): State<Compute>, base: Base) -> Json<Value> {
    Json(json!({"versions": version_documents(&base, &compute)}))
}

async fn by_id(
    compute: State<Compute>,
    base: Base,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    if id == "v2.1" {
        return Ok(show(compute, base).await);
    }
    if id == "v2.0" {
        return Ok(show_old(base).await);
    }
    Err(Refusal::not_found("The resource could not be found."))
}

async fn show(State(compute): State<Compute>, base: Base) -> Json<Value> {
    alone(document(&base, &compute), "application/vnd.openstack.compute+json;version=2.1")
}
