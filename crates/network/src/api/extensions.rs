//! The extension list, the availability zones, and the agents. The list of agents is empty, because
//! hosts get their configuration from the compute service.

use axum::extract::Path;
use kilonova_access::{Caller, Guard, Routes, delete, get, put};
use kilonova_wire::query::Query;
use kilonova_wire::{Base, Context, Refusal};
use serde_json::{Value, json};

use super::listing::{self, Collection};
use super::{Answer, ok};
use crate::Networks;
use crate::app::zones::ZONE;

/// Alias, name, description.
const EXTENSIONS: &[(&str, &str, &str)] = &[
    ("allowed-address-pairs", "Allowed Address Pairs", "Additional addresses that a port may use."),
    ("availability_zone", "Availability Zone", "The availability zones of the network service."),
    (
        "availability_zone_filter",
        "Availability Zone Filter Extension",
        "Lists of availability zones have filters.",
    ),
    ("binding", "Port Binding", "The host and VIF of a port."),
    ("dns-integration", "DNS Integration", "DNS names of ports."),
    ("empty-string-filtering", "Empty String Filtering Extension", "Filters match empty strings."),
    ("ext-gw-mode", "Neutron L3 Configurable external gateway mode", "SNAT can be disabled."),
    ("external-net", "Neutron external network", "External networks."),
    ("extraroute", "Neutron Extra Route", "Additional routes of routers."),
    ("extraroute-atomic", "Atomically add/remove extra routes", "Routes are added one by one."),
    ("fip-port-details", "Floating IP Port Details Extension", "Floating IPs show their port."),
    (
        "filter-validation",
        "Filter parameters validation",
        "Filters on unknown attributes are refused.",
    ),
    (
        "ip-substring-filtering",
        "IP address substring filtering",
        "Lists of ports by a part of an address.",
    ),
    ("multi-provider", "Multi Provider Network", "Physical attributes of networks."),
    ("net-mtu", "Network MTU", "The MTU of a network."),
    ("net-mtu-writable", "Network MTU (writable)", "The MTU of a network can be changed."),
    (
        "network_availability_zone",
        "Network Availability Zone",
        "The availability zone of a network.",
    ),
    ("port-device-profile", "Port device profile", "The accelerator of a port."),
    ("port-security", "Port Security", "Port security can be disabled."),
    (
        "port-security-groups-filtering",
        "Port filtering on security groups",
        "Lists of ports by security group.",
    ),
    ("project-id", "project_id field enabled", "Resources name their project in project_id."),
    ("provider", "Provider Network", "The physical network and segment of a network."),
    ("quotas", "Quota management support", "Limits of projects."),
    ("quota-check-limit", "Quota engine limit check", "A limit is not below the usage."),
    (
        "quota-check-limit-default",
        "Quota engine limit check by default",
        "Limits are checked unless forced.",
    ),
    ("quota_details", "Quota details management support", "Usage of projects."),
    (
        "revision-if-match",
        "If-Match constraints based on revision_number",
        "Changes of a given revision.",
    ),
    ("router", "Neutron L3 Router", "Routers and floating IPs."),
    ("router_availability_zone", "Router Availability Zone", "The availability zone of a router."),
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
    ("stateful-security-group", "Stateful security group", "Groups say whether they have state."),
    (
        "subnet-external-network",
        "Subnet belongs to an external network",
        "Subnets of external networks are visible to all projects.",
    ),
    (
        "tag-ports-during-bulk-creation",
        "Tag Ports During Bulk Creation",
        "New ports may have tags.",
    ),
];

pub(super) fn routes() -> Routes<Networks> {
    const AGENTS: Guard = Guard::Object(&["get_agent"]);
    Routes::new()
        // Upstream has no policy rule for these routes: any token suffices.
        .route("/v2.0/extensions", [get(Guard::Anyone, list)])
        .route("/v2.0/extensions/{alias}", [get(Guard::Anyone, show)])
        .route("/v2.0/availability_zones", [get("get_availability_zone", zones)])
        .route("/v2.0/agents", [get(AGENTS, agents)])
        .route(
            "/v2.0/agents/{id}",
            [
                get(AGENTS, agent),
                put(Guard::Object(&["update_agent"]), agent),
                delete(Guard::Object(&["delete_agent"]), agent),
            ],
        )
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

const ZONES: Collection = Collection {
    path: "availability_zones",
    key: "availability_zones",
    primary_key: "id",
    hidden: &[],
};

async fn zones(_: Context, base: Base, query: Query) -> Answer {
    let zone = |resource: &str| {
        let view = json!({"name": ZONE, "resource": resource, "state": "available"});
        view.as_object().cloned().unwrap_or_default()
    };
    let views = vec![zone("network"), zone("router")];
    listing::answer(&ZONES, &["name", "resource", "state"], views, &query, &base)
}

/// The list is always empty, so the rule has nothing to filter.
async fn agents(_: Caller) -> Answer {
    ok(json!({"agents": []}))
}

/// Upstream looks an agent up before it applies the rule, so that every caller gets 404.
async fn agent(_: Caller, Path(id): Path<String>) -> Answer {
    Err(Refusal::not_found(format!("Agent {} could not be found.", id.escape_debug()))
        .with_code("AgentNotFound"))
}
