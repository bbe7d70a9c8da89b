//! Which parts of Neutron there are, the zones, and the agents, of which there are none: hosts take
//! their orders from the compute service.

use axum::extract::Path;
use kilonova_access::{Caller, Guard, Routes, get};
use kilonova_wire::{Context, Fault};
use serde_json::{Value, json};

use super::{Answer, ok};
use crate::Networks;

/// Alias, name, what it is.
const EXTENSIONS: &[(&str, &str, &str)] = &[
    ("allowed-address-pairs", "Allowed Address Pairs", "Addresses a port may use besides its own."),
    ("availability_zone", "Availability Zone", "The availability zones of the network service."),
    ("binding", "Port Binding", "Where a port is plugged in."),
    ("dns-integration", "DNS Integration", "Names of ports."),
    ("external-net", "Neutron external network", "Networks that lead outside."),
    ("multi-provider", "Multi Provider Network", "Physical attributes of networks."),
    ("net-mtu", "Network MTU", "The size of packets on a network."),
    ("net-mtu-writable", "Network MTU (writable)", "The size of packets can be set."),
    ("port-device-profile", "Port device profile", "The accelerator that a port is."),
    ("port-security", "Port Security", "Whether security groups apply to a port."),
    ("project-id", "project_id field enabled", "Things say whose they are by project_id."),
    ("provider", "Provider Network", "What of a physical network a network takes."),
    ("quotas", "Quota management support", "How much a project may have."),
    ("quota_details", "Quota details management support", "How much a project has."),
    ("security-group", "security-group", "What may reach a port."),
    ("service-type", "Neutron Service Type Management", "Who provides services; nobody does."),
    ("sorting", "Sorting support", "Lists in an order."),
    ("network-ip-availability", "Network IP Availability", "How many addresses are in use."),
    ("pagination", "Pagination support", "Lists in pages."),
    ("standard-attr-description", "standard-attr-description", "Things have a description."),
    ("standard-attr-revisions", "Resource revision numbers", "Changes of a thing are counted."),
    ("standard-attr-tag", "Tag support for resources with standard attribute", "Things have tags."),
    ("standard-attr-timestamp", "Resource timestamps", "When a thing was made and changed."),
    (
        "subnet-external-network",
        "Subnet belongs to an external network",
        "Subnets of external networks are visible to everybody.",
    ),
];

pub(super) fn routes() -> Routes<Networks> {
    const AGENTS: Guard = Guard::Object(&["get_agent"]);
    Routes::new()
        // Upstream has no rule for these: whoever has a token may know what the service can do.
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
        None => Err(Fault::not_found(format!(
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

/// There are none, so the rule has nothing to leave out.
async fn agents(_: Caller) -> Answer {
    ok(json!({"agents": []}))
}

async fn agent(_: Caller, Path(id): Path<String>) -> Answer {
    Err(Fault::not_found(format!("Agent {} could not be found.", id.escape_debug()))
        .with_code("AgentNotFound"))
}
