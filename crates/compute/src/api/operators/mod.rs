//! `/kilonova/…`: views for the operators' commands, and requests that begin a move of a rebalance or drain a host.
//! They exist at every microversion; upstream has no such paths. They are for administrators, with two exceptions: the
//! owner of a server sees part of the server's view, and a member of a project sees the room for a flavor.

mod capacity;
mod doctor;
mod drain;
mod floor;
mod host;
mod rebalance;
mod room;
mod server;
mod usage;

use kilonova_access::{Routes, delete, get, post};
use kilonova_compute_app::Compute;
use kilonova_wire::Refusal;
use kilonova_wire::query::Query;

pub(super) fn routes() -> Routes<Compute> {
    Routes::new()
        .route("/v2.1/kilonova/servers/{id}", [get("kilonova:servers:show", server::show)])
        .route("/v2.1/kilonova/floor", [get("kilonova:floor:show", floor::show)])
        .route("/v2.1/kilonova/capacity", [get("kilonova:capacity:show", capacity::show)])
        .route("/v2.1/kilonova/usage", [get("kilonova:capacity:show", usage::show)])
        .route("/v2.1/kilonova/doctor", [get("kilonova:doctor:show", doctor::show)])
        .route("/v2.1/kilonova/room", [get("kilonova:room:show", room::show)])
        .route(
            "/v2.1/kilonova/rebalance",
            [
                get("kilonova:rebalance:show", rebalance::show),
                post("kilonova:rebalance:move", rebalance::begin),
            ],
        )
        .route("/v2.1/kilonova/hosts/{host}", [get("kilonova:hosts:show", host::show)])
        .route(
            "/v2.1/kilonova/hosts/{host}/drain",
            [
                post("kilonova:hosts:drain", drain::begin),
                delete("kilonova:hosts:drain", drain::stop),
            ],
        )
}

/// The flavor that a query names, if any.
fn flavor_of(query: &Query) -> Result<Option<String>, Refusal> {
    if query.all("flavor").count() > 1 {
        return Err(Refusal::bad_request("The query must name one flavor."));
    }
    Ok(query.get("flavor").map(str::to_owned))
}
