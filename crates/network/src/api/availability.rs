//! `/v2.0/network-ip-availabilities`: addresses of networks, and how many are in use.

use axum::extract::{Path, State};
use kilonova_access::{Caller, Guard, Routes, get};
use kilonova_ids::NetworkId;
use kilonova_wire::Base;
use kilonova_wire::query::Query;
use serde_json::json;

use super::listing::{self, Collection};
use super::{Answer, ok};
use crate::Networks;
use crate::app::{availability, id};
use crate::error::not_found;

const COLLECTION: Collection =
    Collection { path: "network-ip-availabilities", key: "network_ip_availabilities" };

/// What the list is filtered and sorted by.
const KNOWN: &[&str] =
    &["network_id", "network_name", "project_id", "tenant_id", "total_ips", "used_ips"];

/// Decides over all of it.
const RULE: &str = "get_network_ip_availability";

pub(super) fn routes() -> Routes<Networks> {
    const ASKED: Guard = Guard::Object(&[RULE]);
    Routes::new()
        .route("/v2.0/network-ip-availabilities", [get(ASKED, list)])
        .route("/v2.0/network-ip-availabilities/{id}", [get(ASKED, show)])
}

/// Whoever the rule does not let see them gets an empty list, as from upstream.
async fn list(
    State(networks): State<Networks>,
    caller: Caller,
    base: Base,
    query: Query,
) -> Answer {
    let mut views = Vec::new();
    if caller.allows_own(RULE) {
        views = networks.store.read(availability::all).await?;
    }
    // `ip_version` leaves out subnets, and networks without one of that version.
    if let Some(version) = query.get("ip_version") {
        views = views.into_iter().filter_map(|view| availability::only(view, version)).collect();
    }
    listing::answer(&COLLECTION, KNOWN, views, &query.without("ip_version"), &base)
}

async fn show(
    State(networks): State<Networks>,
    caller: Caller,
    query: Query,
    Path(text): Path<String>,
) -> Answer {
    let missing = || not_found("network", text.escape_debug());
    if !caller.allows_own(RULE) {
        return Err(missing());
    }
    let network: NetworkId = id("network", &text)?;
    let view = networks.store.read(move |tx| availability::one(tx, network)).await?;
    let view = listing::trim(view.ok_or_else(missing)?, &query);
    ok(json!({"network_ip_availability": view}))
}
