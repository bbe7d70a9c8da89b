//! `/v2.0/network-ip-availabilities`: the total and allocated addresses of networks.

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

/// The primary key is upstream's (`neutron_lib/api/definitions/network_ip_availability.py`).
const COLLECTION: Collection = Collection {
    path: "network-ip-availabilities",
    key: "network_ip_availabilities",
    primary_key: "network_id",
    hidden: &[],
};

/// Attributes that filters and sort keys may name.
const KNOWN: &[&str] =
    &["network_id", "network_name", "project_id", "tenant_id", "total_ips", "used_ips"];

/// The policy rule of all routes here.
const RULE: &str = "get_network_ip_availability";

pub(super) fn routes() -> Routes<Networks> {
    const AVAILABILITY: Guard = Guard::Object(&[RULE]);
    Routes::new()
        .route("/v2.0/network-ip-availabilities", [get(AVAILABILITY, list)])
        .route("/v2.0/network-ip-availabilities/{id}", [get(AVAILABILITY, show)])
}

/// Returns an empty list if the rule refuses the caller, as upstream does.
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
    // `ip_version` excludes subnets of other versions, and networks without a subnet of that
    // version.
    if let Some(version) = query.get("ip_version") {
        views =
            views.into_iter().filter_map(|view| availability::of_version(view, version)).collect();
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
