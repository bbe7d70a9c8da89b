//! The collections, all of them empty.

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use kilonova_wire::{Context, Fault};
use serde_json::json;

use super::{Answer, ok, unmanaged};

/// Path and what one member is called in a message.
const COLLECTIONS: &[(&str, &str)] = &[
    ("address-groups", "Address group"),
    ("address-scopes", "Address scope"),
    ("agents", "Agent"),
    ("availability_zones", "Availability zone"),
    ("extensions", "Extension"),
    ("flavors", "Flavor"),
    ("floatingips", "Floating IP"),
    ("network-ip-availabilities", "Network IP availability"),
    ("networks", "Network"),
    ("ports", "Port"),
    ("rbac-policies", "RBAC policy"),
    ("routers", "Router"),
    ("security-group-rules", "Security group rule"),
    ("security-groups", "Security group"),
    ("segments", "Segment"),
    ("service-providers", "Service provider"),
    ("subnetpools", "Subnet pool"),
    ("subnets", "Subnet"),
    ("trunks", "Trunk"),
];

pub(super) fn routes() -> Router {
    Router::new()
        .route("/v2.0/{collection}", get(list).post(create))
        .route("/v2.0/{collection}/{id}", get(member).put(member).patch(member).delete(member))
}

fn known(collection: &str) -> Result<&'static str, Fault> {
    COLLECTIONS
        .iter()
        .find(|(path, _)| *path == collection)
        .map(|(_, member)| *member)
        .ok_or_else(|| Fault::not_found("The resource could not be found."))
}

async fn list(_: Context, Path(collection): Path<String>) -> Answer {
    known(&collection)?;
    ok(json!({collection.replace('-', "_"): []}))
}

async fn create(_: Context, Path(collection): Path<String>) -> Answer {
    known(&collection)?;
    Err(unmanaged())
}

async fn member(_: Context, Path((collection, id)): Path<(String, String)>) -> Answer {
    let member = known(&collection)?;
    Err(Fault::not_found(format!("{member} {} could not be found.", id.escape_debug())))
}
