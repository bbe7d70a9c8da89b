//! Paths that are rewritten before they are routed.

use axum::Router;
use axum::extract::Request;
use http::Uri;
use tower::{ServiceExt, service_fn};

/// Wraps a mounted service so that it routes other paths too: `rewrite` returns the path with its query that the
/// service knows, or `None` to leave the path as it is.
pub fn rewritten(mounted: Router, rewrite: fn(&Uri) -> Option<Uri>) -> Router {
    Router::new().fallback_service(service_fn(move |mut request: Request| {
        let mounted = mounted.clone();
        if let Some(uri) = rewrite(request.uri()) {
            *request.uri_mut() = uri;
        }
        mounted.oneshot(request)
    }))
}
