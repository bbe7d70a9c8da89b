//! The HTTP face: one module per resource, merged here.

use axum::Router;

use crate::Compute;

/// All routes, relative to the mount.
pub fn routes(state: Compute) -> Router {
    let _ = &state;
    Router::new()
}
