//! `/console`: the websocket for consoles, and the page with noVNC. Requests are not authenticated;
//! the console token in them grants access.

mod files;
mod origin;
mod session;
mod websocket;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderValue, header};
use kilonova_compute_app::Compute;
use kilonova_wire::Refusal;

/// The routes, relative to `/console`.
pub fn routes(compute: Compute) -> Router {
    Router::new()
        .route("/", get(websocket::connect))
        .route("/websockify", get(websocket::connect))
        .route("/serial", get(websocket::connect))
        .route("/novnc/{*name}", get(file))
        .with_state(compute)
}

/// The routes at the root of a separate listener, as in operators' base URLs.
pub fn routes_at_root(compute: Compute) -> Router {
    Router::new()
        .route("/", get(websocket::connect))
        .route("/websockify", get(websocket::connect))
        .route("/{*name}", get(file))
        .with_state(compute)
}

async fn file(
    State(compute): State<Compute>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let (content, media) =
        files::find(&name).ok_or_else(|| Refusal::not_found("The resource could not be found."))?;
    // The page loads nothing from other origins, and the browser never sends the page's URL, which
    // contains the token, as a referrer.
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: \
         blob:; connect-src 'self' ws: wss:; base-uri 'none'; form-action 'none'; frame-ancestors {}",
        compute.options.consoles.frame_ancestors
    );
    let policy = HeaderValue::from_str(&policy)
        .map_err(|_| Refusal::internal("[console] frame_ancestors is not a header's value"))?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(media)),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CACHE_CONTROL, HeaderValue::from_static("max-age=3600")),
    ];
    Ok((headers, content).into_response())
}
