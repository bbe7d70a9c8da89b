//! The rows that hosts need to realize their routers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use kilonova_ids::{HostName, NetworkId, PortId, RouterId};
use kilonova_store::{Error, Row, Tx, params, statements};

use super::parse;
use super::routers::parsed;
use crate::record::Body;

statements! {
    /// The routers of a host.
    ROUTERS = "SELECT r.id, r.body FROM router_places h JOIN routers r ON r.id = h.router_id
        WHERE h.host = ?1 ORDER BY r.id";
    /// The interfaces of a host's routers, with networks, addresses and subnets.
    INTERFACES = "SELECT h.router_id, g.gateway, p.id AS port_id, p.mac, n.id AS network_id,
            n.body AS network_body, a.address, s.body AS subnet_body
        FROM router_places h JOIN router_ports g ON g.router_id = h.router_id
        JOIN ports p ON p.id = g.port_id JOIN networks n ON n.id = p.network_id
        LEFT JOIN port_addresses a ON a.port_id = p.id LEFT JOIN subnets s ON s.id = a.subnet_id
        WHERE h.host = ?1 ORDER BY h.router_id, p.seq, a.ordinal";
    /// The floating IPs behind a host's routers.
    FLOATING = "SELECT f.router_id, f.address, f.fixed_address FROM router_places h
        JOIN floating_ips f ON f.router_id = h.router_id WHERE h.host = ?1
        ORDER BY f.router_id, f.address";
}

/// An interface of a router.
pub(crate) struct InterfaceRow {
    pub gateway: bool,
    pub port: PortId,
    pub mac: String,
    pub network: NetworkId,
    pub network_body: Body,
    /// Addresses with the bodies of their subnets.
    pub addresses: Vec<(IpAddr, Body)>,
}

/// A router of a host.
pub(crate) struct RouterRow {
    pub id: RouterId,
    pub body: Body,
    pub interfaces: Vec<InterfaceRow>,
    /// Floating and fixed addresses.
    pub floating: Vec<(IpAddr, IpAddr)>,
}

/// Announces [`of_host`].
pub(crate) fn expect_of_host(tx: &mut Tx<'_>, host: &HostName) -> Result<(), Error> {
    tx.expect(ROUTERS, params![host])
}

/// The routers of a host. A host without routers (the usual case) takes only one statement.
pub(crate) fn of_host(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<RouterRow>, Error> {
    let routers = tx.rows(ROUTERS, params![host])?;
    if routers.is_empty() {
        return Ok(Vec::new());
    }
    let interfaces = tx.ask(INTERFACES, params![host])?;
    let floating = tx.ask(FLOATING, params![host])?;
    let mut all: BTreeMap<RouterId, RouterRow> = BTreeMap::new();
    let mut order = Vec::new();
    for row in routers {
        let id: RouterId = row.id("id")?;
        let body = parse(row.text("body")?)?;
        order.push(id);
        all.insert(id, RouterRow { id, body, interfaces: Vec::new(), floating: Vec::new() });
    }
    for row in tx.answer(interfaces)? {
        if let Some(router) = all.get_mut(&row.id("router_id")?) {
            interface(router, &row)?;
        }
    }
    for row in tx.answer(floating)? {
        if let Some(router) = all.get_mut(&row.id("router_id")?) {
            let pair = (parsed(row.text("address")?)?, parsed(row.text("fixed_address")?)?);
            router.floating.push(pair);
        }
    }
    Ok(order.into_iter().filter_map(|id| all.remove(&id)).collect())
}

fn interface(router: &mut RouterRow, row: &Row) -> Result<(), Error> {
    let port: PortId = row.id("port_id")?;
    if router.interfaces.last().is_none_or(|last| last.port != port) {
        router.interfaces.push(InterfaceRow {
            gateway: row.bool("gateway")?,
            port,
            mac: row.string("mac")?,
            network: row.id("network_id")?,
            network_body: parse(row.text("network_body")?)?,
            addresses: Vec::new(),
        });
    }
    if let (Some(address), Some(body)) = (row.text_opt("address")?, row.text_opt("subnet_body")?)
        && let Some(last) = router.interfaces.last_mut()
    {
        last.addresses.push((parsed(address)?, parse(body)?));
    }
    Ok(())
}
