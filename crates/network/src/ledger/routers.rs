//! Routers: their placement by the compute service, and their configuration for hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;
use kilonova_ids::{HostName, RouterId};
use kilonova_node_api::{FloatingAddress, Router, RouterAddress, RouterInterface, SixMode};
use kilonova_store::Tx;
use serde_json::Value as Json;

use crate::Error;
use crate::address::Cidr;
use crate::db::changes::NetworkChange;
use crate::db::router_hosts::{self, InterfaceRow, RouterRow};
use crate::db::routers as rows;
pub use crate::db::routers::Place;
use crate::record::Body;

/// The facts that determine the gateway host of a router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouterFacts {
    /// Its place.
    pub place: Place,
    /// The physical networks of its ports. Empty for a router without ports and for a deleted one,
    /// which need no host.
    pub physical_networks: BTreeSet<String>,
}

/// The routers that a change concerns.
///
/// # Errors
/// Database errors; also for all functions below.
pub fn routers_of(tx: &mut Tx<'_>, change: NetworkChange) -> Result<BTreeSet<RouterId>, Error> {
    Ok(match change {
        NetworkChange::Router(id) => [id].into(),
        NetworkChange::Network(id) => rows::on_network(tx, id)?,
        NetworkChange::Port(_) | NetworkChange::Rules(_) | NetworkChange::Members(_) => {
            BTreeSet::new()
        }
    })
}

/// Makes the transaction conflict with every other change of the router. Call it before [`router_facts`] in a
/// transaction that acts on the facts.
pub fn lock_router(tx: &mut Tx<'_>, router: RouterId) -> Result<(), Error> {
    Ok(rows::touch(tx, router)?)
}

/// The facts of a router, which may have been deleted.
pub fn router_facts(tx: &mut Tx<'_>, router: RouterId) -> Result<RouterFacts, Error> {
    let networks = rows::networks(tx, router)?;
    let physical = networks.iter().map(|body| text(body, "provider:physical_network"));
    Ok(RouterFacts { physical_networks: physical.collect(), place: rows::place(tx, router)? })
}

/// Sets the place of a router, and binds its ports accordingly.
pub fn place_router(
    tx: &mut Tx<'_>,
    router: RouterId,
    place: &Place,
    now: Timestamp,
) -> Result<(), Error> {
    Ok(rows::set_place(tx, router, place, now)?)
}

/// Maximum number of routers that [`next_routers`] returns.
pub use crate::db::routers::PAGE as ROUTERS_PAGE;

/// The next routers, by id, that wait for a host or are on one of these hosts.
pub fn next_routers(
    tx: &mut Tx<'_>,
    hosts: &[HostName],
    after: Option<RouterId>,
) -> Result<Vec<RouterId>, Error> {
    Ok(rows::next(tx, hosts, after)?)
}

/// The physical networks of these routers. Omits routers without ports.
pub fn router_needs(
    tx: &mut Tx<'_>,
    routers: &[RouterId],
) -> Result<BTreeMap<RouterId, BTreeSet<String>>, Error> {
    let mut needs: BTreeMap<RouterId, BTreeSet<String>> = BTreeMap::new();
    for (router, network) in rows::networks_of(tx, routers)? {
        needs.entry(router).or_default().insert(text(&network, "provider:physical_network"));
    }
    Ok(needs)
}

/// Records a change to each router on a host, because the host's physical networks have changed.
pub fn record_host_networks_change(tx: &mut Tx<'_>, host: &HostName) -> Result<(), Error> {
    Ok(crate::db::changes::record_routers(tx, host)?)
}

/// Removes all routers from a host that is being deleted; they then wait for another host.
pub fn unplace_routers_of(tx: &mut Tx<'_>, host: &HostName, now: Timestamp) -> Result<(), Error> {
    Ok(rows::unplace_routers_of(tx, host, now)?)
}

/// The number of routers of each host that has any.
pub fn router_load(tx: &mut Tx<'_>) -> Result<BTreeMap<HostName, i64>, Error> {
    Ok(rows::load(tx)?)
}

/// Announces [`routers`].
pub fn expect_routers(tx: &mut Tx<'_>, host: &HostName) -> Result<(), Error> {
    Ok(router_hosts::expect_of_host(tx, host)?)
}

/// The configuration of a host's routers, without those that are administratively down.
pub fn routers(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<Router>, Error> {
    let all = router_hosts::of_host(tx, host)?;
    let up = |row: &RouterRow| flag(&row.body, "admin_state_up");
    Ok(all.into_iter().filter(up).map(router).collect())
}

fn text(body: &Body, key: &str) -> String {
    body.get(key).and_then(Json::as_str).unwrap_or_default().to_owned()
}

fn list<'a>(body: &'a Body, key: &str) -> impl Iterator<Item = &'a Json> {
    body.get(key).and_then(Json::as_array).into_iter().flatten()
}

fn flag(body: &Body, key: &str) -> bool {
    body.get(key).and_then(Json::as_bool).unwrap_or(true)
}

fn ip(value: &Json) -> Option<IpAddr> {
    value.as_str()?.parse().ok()
}

fn router(row: RouterRow) -> Router {
    let routes = row.body.get("routes").and_then(Json::as_array).into_iter().flatten();
    let pair = |pair: &(IpAddr, IpAddr)| match pair {
        (IpAddr::V4(floating), IpAddr::V4(fixed)) => {
            Some(FloatingAddress { floating: *floating, fixed: *fixed })
        }
        (IpAddr::V4(_) | IpAddr::V6(_), _) => None,
    };
    Router {
        id: row.id,
        interfaces: row.interfaces.iter().map(interface).collect(),
        snat: flag(&row.body, "enable_snat"),
        floating: row.floating.iter().filter_map(pair).collect(),
        routes: routes.filter_map(super::route).collect(),
    }
}

fn interface(row: &InterfaceRow) -> RouterInterface {
    let network = &row.network_body;
    RouterInterface {
        port: row.port,
        mac: row.mac.clone(),
        network: row.network,
        physical_network: text(network, "provider:physical_network"),
        vlan: network.get("provider:segmentation_id").and_then(Json::as_i64),
        mtu: network.get("mtu").and_then(Json::as_i64).unwrap_or(1500),
        external: row.gateway,
        addresses: row.addresses.iter().map(|(ip, subnet)| address(row, *ip, subnet)).collect(),
    }
}

fn address(row: &InterfaceRow, address: IpAddr, subnet: &Body) -> RouterAddress {
    let cidr = Cidr::parse(&text(subnet, "cidr"));
    let gateway = subnet.get("gateway_ip").and_then(ip).filter(|hop| *hop != address);
    let mode = SixMode::parse(&text(subnet, "ipv6_ra_mode"));
    RouterAddress {
        address,
        prefix: cidr.map_or(32, |cidr| cidr.prefix),
        gateway: gateway.filter(|_| row.gateway),
        advertisement: mode.filter(|_| !row.gateway),
        dns: match mode {
            Some(_) => list(subnet, "dns_nameservers").filter_map(ip).collect(),
            None => Vec::new(),
        },
    }
}
