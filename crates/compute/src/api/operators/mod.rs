//! `/kilonova/…`, which upstream does not have: what operators' commands look at, at every
//! microversion, and only to read. For administrators; of a server its owner is told a part.

mod host;
mod server;

use crate::Compute;
use kilonova_access::{Routes, get};

pub(super) fn routes() -> Routes<Compute> {
    Routes::new()
        .route("/v2.1/kilonova/servers/{id}", [get("kilonova:servers:show", server::show)])
        .route("/v2.1/kilonova/hosts/{host}", [get("kilonova:hosts:show", host::show)])
}
