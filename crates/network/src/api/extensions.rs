//! The extension list, the availability zones, and the agents. The list of agents is empty, because
//! hosts get their configuration from the compute service.

use axum::extract::Path;
use kilonova_access::{Caller, Guard, Routes, get};
use kilonova_wire::{Context, Refusal};
use serde_json::{Value, json};

use super::{Answer, ok};
use crate::Networks;

/// Alias, name, description.
const EXTENSIONS: &[(&str, &str, &str)] = &[
    ("allowed-address-pairs", "Allowed Address Pairs", "Additional addresses that a port may use."),
    ("availability_zone", "Availability Zone", "The availability zones of the network service."),
    ("binding", "Port Binding", "The host and VIF of a port."),
    ("dns-integration", "DNS Integration", "DNS names of ports."),
    ("ext-gw-mode", "Neutron L3 Configurable external gateway mode", "SNAT can be disabled."),
    ("external-net", "Neutron external network", "External networks."),
    ("extraroute", "Neutron Extra Route", "Additional routes of routers."),
    ("extraroute-atomic", "Atomically add/remove extra routes", "Routes are added one by one."),
    ("fip-port-details", "Floating IP Port Details Extension", "Floating IPs show their port."),
    ("multi-provider", "Multi Provider Network", "Physical attributes of networks."),
    ("net-mtu", "Network MTU", "The MTU of a network."),
    ("net-mtu-writable", "Network MTU (writable)", "The MTU of a network can be changed."),
    ("port-device-profile", "Port device profile", "The accelerator of a port."),
    ("port-security", "Port Security", "Port security can be disabled."),
    ("project-id", "project_id field enabled", "Resources name their project in project_id."),
    ("provider", "Provider Network", "The physical network and segment of a network."),
    ("quotas", "Quota management support", "Limits of projects."),
    ("quota_details", "Quota details management support", "Usage of projects."),
    ("router", "Neutron L3 Router", "Routers and floating IPs."),
    ("security-group", "security-group", "Filtering of a port's traffic."),
    ("service-type", "Neutron Service Type Management", "Service providers; there are none."),
    ("sorting", "Sorting support", "Sorted lists."),
    ("network-ip-availability", "Network IP Availability", "Usage of a network's addresses."),
    ("pagination", "Pagination support", "Paginated lists."),
    ("standard-attr-description", "standard-attr-description", "Resources have a description."),
    ("standard-attr-revisions", "Resource revision numbers", "Resources have a revision number."),
    (
        "standard-attr-tag",
        "Tag support for resources with standard attribute",
        "Resources have tags.",
    ),
    ("standard-attr-timestamp", "Resource timestamps", "Creation and update times of resources."),
    (
        "subnet-external-network",
        "Subnet belongs to an external network",
        "Subnets of external networks are visible to all projects.",
    ),
];

pub(super) fn routes() -> Routes<Networks> {
    const AGENTS: Guard = Guard::Object(&["get_agent"]);
    Routes::new()
        // Upstream has no rule for these: any token suffices.
        .route("/v2.0/extensions", [get(Guard::Anyone, list)])
        .route("/v2.0/extensions/{alias}", [get(Guard::Anyone, show)])
        .route("/v2.0/availability_zones", [get("get_availability_zone", zones)])
        .route("/v2.0/agents", [get(AGENTS, agents)])
        .route("/v2.0/agents/{id}", [get(AGENTS, agent)])
}

fn view((alias, name, description): &(&str, &str, &str)) -> Value {
    json!({"alias": alias, "name": name, "description": description, "links": [],
        "updated": "2026-11-21T00:00:00-00:00"})
}

async fn list(_: Context) -> Answer {
    ok(json!({"extensions": EXTENSIONS.iter().map(view).collect::<Vec<_>>()}))
}

async fn show(_: Context, Path(alias): Path<String>) -> Answer {
    match EXTENSIONS.iter().find(|(known, ..)| *known == alias) {
        Some(found) => ok(json!({"extension": view(found)})),
        None => Err(Refusal::not_found(format!(
            "Extension with alias {} does not exist",
            alias.escape_debug()
        ))
        .with_code("ExtensionNotFound")),
    }
}

async fn zones(_: Context) -> Answer {
    ok(json!({"availability_zones": [
        {"name": "nova", "resource": "network", "state": "available"},
    ]}))
}

/// The list is always empty, so the rule has nothing to filter.
async fn agents(_: Caller) -> Answer {
    ok(json!({"agents": []}))
}

async fn agent(_: Caller, Path(id): Path<String>) -> Answer {
    Err(Refusal::not_found(format!("Agent {} could not be found.", id.escape_debug()))
        .with_code("AgentNotFound"))
}
