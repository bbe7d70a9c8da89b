//! `/extensions`: a list that older clients read to learn what they may ask. It names what is
//! served here, and nothing else.

use axum::extract::Path;
use axum::routing::get;
use axum::{Json, Router};
use kilonova_wire::Fault;
use serde_json::{Value, json};

use crate::Compute;

const UPDATED: &str = "2014-12-03T00:00:00Z";
const EXTENSIONS: &[(&str, &str, &str)] = &[
    ("OS-EXT-STS", "ExtendedStatus", "Task, power and VM state of servers."),
    ("OS-FLV-DISABLED", "FlavorDisabled", "Whether a flavor is disabled."),
    ("OS-FLV-EXT-DATA", "FlavorExtraData", "Ephemeral disk of flavors."),
    ("os-availability-zone", "AvailabilityZone", "Zones and their hosts."),
    ("os-flavor-access", "FlavorAccess", "Projects that may use a private flavor."),
    ("os-flavor-extra-specs", "FlavorExtraSpecs", "Extra specs of flavors."),
    ("os-flavor-manage", "FlavorManage", "Creation and deletion of flavors."),
    ("os-flavor-rxtx", "FlavorRxtx", "The rxtx factor of flavors."),
    ("os-hypervisors", "Hypervisors", "Compute hosts and what is used of them."),
    ("os-keypairs", "Keypairs", "Public keys of users."),
    ("os-quota-class-sets", "QuotaClasses", "Limits that are everybody's defaults."),
    ("os-quota-sets", "Quotas", "Limits of projects and of users in them."),
    ("os-services", "Services", "Services of the control plane."),
    ("os-used-limits", "UsedLimits", "What a project uses of its limits."),
];

pub(super) fn routes() -> Router<Compute> {
    Router::new().route("/v2.1/extensions", get(list)).route("/v2.1/extensions/{alias}", get(show))
}

fn shown((alias, name, description): &(&str, &str, &str)) -> Value {
    json!({
        "alias": alias,
        "name": name,
        "description": description,
        "links": [],
        "namespace": "http://docs.openstack.org/compute/ext/fake_xml",
        "updated": UPDATED,
    })
}

async fn list() -> Json<Value> {
    Json(json!({"extensions": EXTENSIONS.iter().map(shown).collect::<Vec<_>>()}))
}

async fn show(Path(alias): Path<String>) -> Result<Json<Value>, Fault> {
    let found = EXTENSIONS.iter().find(|(have, ..)| *have == alias);
    let extension =
        found.ok_or_else(|| Fault::not_found(format!("Extension {alias} could not be found.")))?;
    Ok(Json(json!({"extension": shown(extension)})))
}
