//! `/kilonova/…`, which upstream does not have: what operators' commands look at. Administrators only,
//! at every microversion, and only to read.

mod host;
mod server;

use axum::Router;
use axum::routing::get;

use crate::Compute;

pub(super) fn routes() -> Router<Compute> {
    Router::new()
        .route("/v2.1/kilonova/servers/{id}", get(server::show))
        .route("/v2.1/kilonova/hosts/{host}", get(host::show))
}
