//! Functions that the compute service calls within its own transaction: the ports of servers.
//!
//! [`AUDIT`] and the compute service's audit check these rules:
//!
//! - an address has one port, and that port exists (enforced by keys and references);
//! - a port created for a server belongs to that server;
//! - a port with a device belongs to a server on a host;
//! - a floating IP has at most one fixed address, and a router between the two.
//!
//! This module must never open a transaction, wait, or depend on anything about a server except its id.

mod addresses;
mod attach;
mod hosts;
mod query;
mod routers;
mod show;

use std::net::IpAddr;

use serde_json::Value;

use crate::address::Cidr;
pub use crate::db::AUDIT;
pub use addresses::{add_address, remove_address};
pub use attach::{
    Attach, NewPorts, PendingAddresses, PortSource, attach, bind, detach, detach_all, set_device,
};
pub use hosts::{
    NetworkChange, filters, has_changed, record_change, servers_to_filter, servers_to_reconnect,
    take_changes,
};
pub use query::{
    GroupChange, NetworkFacts, PortFacts, available, check_quota, expect_available, expect_network,
    expect_port, expect_quota, groups_by_name, is_near_quota, network, port, set_groups,
};
pub use routers::{
    Place, ROUTERS_PAGE, RouterFacts, expect_routers, lock_router, next_routers, place_router,
    record_host_networks_change, router_facts, router_load, router_needs, routers, routers_of,
    unplace_routers_of,
};
pub use show::{
    Fixed, GroupFacts, ServerPort, at_address, expect_of_servers, group_names, group_views,
    group_with_rules, of_server, of_servers, project_groups,
};

/// A stored route. Clients see its destination as it was sent; hosts and guests get the usual spelling.
fn route(route: &Value) -> Option<(String, IpAddr)> {
    let destination = Cidr::parse(route["destination"].as_str()?)?;
    Some((destination.to_string(), route["nexthop"].as_str()?.parse().ok()?))
}
