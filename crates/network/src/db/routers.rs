//! Rows of `routers`, their ports, and their places: the gateway host of each router.
//!
//! Every change to a router's ports and to the floating IPs behind it also updates the
//! router's row, so that concurrent changes conflict.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::net::IpAddr;

use kilonova_ids::{HostName, NetworkId, PortId, RouterId, RouterKind, SubnetId};
use kilonova_store::{Error, Row, Tx, Value, params, statements};

use super::{record, rows_in, text};
use crate::record::Record;

/// Maximum number of routers that [`next`] returns.
pub const PAGE: usize = 1000;

pub(crate) type Router = Record<RouterKind>;

/// A port of a router.
#[derive(Debug, Clone)]
pub(crate) struct RouterPort {
    pub router: RouterId,
    pub port: PortId,
    pub network: NetworkId,
    /// True for the port on the external network.
    pub gateway: bool,
    pub addresses: Vec<(SubnetId, IpAddr)>,
}

statements! {
    /// Adds a router.
    INSERT = "INSERT INTO routers (id, project_id, body, revision, created_at, updated_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    /// Updates the mutable columns.
    UPDATE = "UPDATE routers SET body = ?2, revision = ?3, updated_at = ?4 WHERE id = ?1";
    /// Makes the transaction conflict with every other change to the router.
    TOUCH = "UPDATE routers SET revision = revision WHERE id = ?1";
    /// One router.
    FIND = concat!("SELECT ", record_columns!("r"), " FROM routers r WHERE r.id = ?1");
    /// The routers of a project, or all.
    LIST = concat!(
        "SELECT ",
        record_columns!("r"),
        " FROM routers r WHERE CAST(?1 AS TEXT) IS NULL OR r.project_id = ?1 ORDER BY r.seq"
    );
    /// Deletes a router.
    DELETE = "DELETE FROM routers WHERE id = ?1";
    /// Adds a port to a router.
    ADD_PORT = "INSERT INTO router_ports (port_id, router_id, network_id, gateway)
        VALUES (?1, ?2, ?3, ?4)";
    /// Records a subnet of a router's interface; no row if the router already has an interface
    /// there.
    ADD_SUBNET = "INSERT INTO router_subnets (router_id, subnet_id, port_id) VALUES (?1, ?2, ?3)
        ON CONFLICT (router_id, subnet_id) DO NOTHING RETURNING port_id";
    /// Removes a port from its router.
    REMOVE_PORT = "DELETE FROM router_ports WHERE port_id = ?1";
    /// The router of a port.
    OF_PORT = "SELECT router_id FROM router_ports WHERE port_id = ?1";
    /// The ports of a router with their addresses.
    PORTS = "SELECT rp.router_id, rp.port_id, rp.gateway, rp.network_id, a.subnet_id, a.address
        FROM router_ports rp JOIN ports p ON p.id = rp.port_id
        LEFT JOIN port_addresses a ON a.port_id = p.id
        WHERE rp.router_id = ?1 ORDER BY p.seq, a.ordinal";
    /// The gateway ports of routers, with their addresses.
    GATEWAYS = "SELECT rp.router_id, rp.port_id, rp.gateway, rp.network_id, a.subnet_id, a.address
        FROM router_ports rp LEFT JOIN port_addresses a ON a.port_id = rp.port_id
        WHERE rp.router_id IN ({}) AND rp.gateway = 1 ORDER BY rp.port_id, a.ordinal";
    /// The router interfaces on a subnet, with their addresses there.
    ON_SUBNET = "SELECT s.port_id, a.address FROM router_subnets s
        JOIN port_addresses a ON a.port_id = s.port_id AND a.subnet_id = s.subnet_id
        WHERE s.subnet_id = ?1 ORDER BY s.router_id";
    /// The routers between a subnet and an external network, with their addresses on the subnet.
    BETWEEN = "SELECT s.router_id, a.address FROM router_subnets s
        JOIN port_addresses a ON a.port_id = s.port_id AND a.subnet_id = s.subnet_id
        JOIN router_ports g ON g.router_id = s.router_id AND g.gateway = 1
        WHERE s.subnet_id = ?1 AND g.network_id = ?2 ORDER BY s.router_id";
    /// A gateway port on a network.
    GATEWAY_ON = "SELECT port_id FROM router_ports WHERE network_id = ?1 AND gateway = 1 LIMIT 1";
    /// A floating IP on a network.
    FLOATING_ON = "SELECT id FROM floating_ips WHERE network_id = ?1 LIMIT 1";
    /// The host of a router.
    PLACE = "SELECT host FROM router_places WHERE router_id = ?1";
    /// Sets the host of a router.
    SET_PLACE = "INSERT INTO router_places (router_id, host) VALUES (?1, ?2)
        ON CONFLICT (router_id) DO UPDATE SET host = excluded.host";
    /// Clears the host of a router.
    FORGET_PLACE = "DELETE FROM router_places WHERE router_id = ?1";
    /// Binds the ports of a router to its host.
    BIND = "UPDATE ports SET host = ?2, updated_at = ?3, revision = revision + 1
        WHERE id IN (SELECT port_id FROM router_ports WHERE router_id = ?1) AND host <> ?2";
    /// Records that a router needs a host.
    NEED_PLACE = "INSERT INTO router_places (router_id, host) VALUES (?1, '')
        ON CONFLICT (router_id) DO NOTHING";
    /// The next routers of a host; an empty name selects the routers that wait for a host.
    ON_HOST = "SELECT router_id FROM router_places WHERE host = ?1 AND router_id > ?2
        ORDER BY router_id LIMIT ?3";
    /// Makes the transaction conflict with every other change to a host's routers.
    TOUCH_OF_HOST = "UPDATE routers SET revision = revision
        WHERE id IN (SELECT router_id FROM router_places WHERE host = ?1)";
    /// Unbinds the ports of a host's routers.
    UNBIND_HOST = "UPDATE ports SET host = '', updated_at = ?2, revision = revision + 1
        WHERE id IN (SELECT g.port_id FROM router_places h
            JOIN router_ports g ON g.router_id = h.router_id WHERE h.host = ?1)";
    /// Clears the host of all routers on it.
    UNPLACE_ROUTERS = "UPDATE router_places SET host = '' WHERE host = ?1";
    /// The number of routers of each host.
    LOAD = "SELECT host, COUNT(*) AS routers FROM router_places WHERE host <> '' GROUP BY host";
    /// The bodies of the networks of a router.
    NETWORKS = "SELECT DISTINCT n.id, n.body FROM router_ports rp
        JOIN networks n ON n.id = rp.network_id WHERE rp.router_id = ?1 ORDER BY n.id";
    /// The bodies of the networks of some routers.
    NETWORKS_OF = "SELECT DISTINCT rp.router_id, n.id, n.body FROM router_ports rp
        JOIN networks n ON n.id = rp.network_id WHERE rp.router_id IN ({})";
    /// The routers with a port on a network.
    ON_NETWORK = "SELECT DISTINCT router_id FROM router_ports WHERE network_id = ?1";
}

pub(crate) fn insert(tx: &mut Tx<'_>, router: &Router) -> Result<(), Error> {
    let values = params![
        router.id,
        &router.project,
        text(&router.body)?,
        router.revision,
        router.created_at,
        router.updated_at,
    ];
    tx.execute(INSERT, values).map(|_| ())
}

pub(crate) fn update(tx: &mut Tx<'_>, router: &Router) -> Result<(), Error> {
    let values = params![router.id, text(&router.body)?, router.revision, router.updated_at];
    tx.execute(UPDATE, values).map(|_| ())
}

/// Makes the transaction conflict with every other change to the router.
pub(crate) fn touch(tx: &mut Tx<'_>, id: RouterId) -> Result<(), Error> {
    tx.defer(TOUCH, params![id])
}

pub(crate) fn find(tx: &mut Tx<'_>, id: RouterId) -> Result<Option<Router>, Error> {
    tx.row(FIND, params![id])?.as_ref().map(record).transpose()
}

/// The routers of a project, or all.
pub(crate) fn list(tx: &mut Tx<'_>, project: Option<&str>) -> Result<Vec<Router>, Error> {
    tx.rows(LIST, params![project])?.iter().map(record).collect()
}

pub(crate) fn delete(tx: &mut Tx<'_>, id: RouterId) -> Result<(), Error> {
    tx.execute(DELETE, params![id]).map(|_| ())
}

/// Adds a port to a router.
pub(crate) fn add_port(
    tx: &mut Tx<'_>,
    router: RouterId,
    port: PortId,
    network: NetworkId,
    gateway: bool,
) -> Result<(), Error> {
    tx.execute(ADD_PORT, params![port, router, network, gateway]).map(|_| ())
}

/// Records a subnet of a router's interface; `false` if the router already has an interface there.
pub(crate) fn add_subnet(
    tx: &mut Tx<'_>,
    router: RouterId,
    subnet: SubnetId,
    port: PortId,
) -> Result<bool, Error> {
    Ok(tx.row(ADD_SUBNET, params![router, subnet, port])?.is_some())
}

/// Removes a port from its router.
pub(crate) fn remove_port(tx: &mut Tx<'_>, port: PortId) -> Result<(), Error> {
    tx.defer(REMOVE_PORT, params![port])
}

/// The router of a port.
pub(crate) fn of_port(tx: &mut Tx<'_>, port: PortId) -> Result<Option<RouterId>, Error> {
    tx.row(OF_PORT, params![port])?.map(|row| row.id("router_id")).transpose()
}

fn fold(rows: &[Row]) -> Result<Vec<RouterPort>, Error> {
    let mut ports: Vec<RouterPort> = Vec::new();
    for row in rows {
        let port: PortId = row.id("port_id")?;
        if ports.last().is_none_or(|last| last.port != port) {
            ports.push(RouterPort {
                router: row.id("router_id")?,
                port,
                network: row.id("network_id")?,
                gateway: row.bool("gateway")?,
                addresses: Vec::new(),
            });
        }
        if let (Some(subnet), Some(address)) = (row.id_opt("subnet_id")?, row.text_opt("address")?)
            && let Some(port) = ports.last_mut()
        {
            port.addresses.push((subnet, parsed(address)?));
        }
    }
    Ok(ports)
}

pub(super) fn parsed(address: &str) -> Result<IpAddr, Error> {
    address.parse().map_err(|_| Error::Shape(format!("address {address}")))
}

/// The ports of a router, oldest first.
pub(crate) fn ports(tx: &mut Tx<'_>, router: RouterId) -> Result<Vec<RouterPort>, Error> {
    fold(&tx.rows(PORTS, params![router])?)
}

/// The gateway ports of routers.
pub(crate) fn gateways(
    tx: &mut Tx<'_>,
    routers: impl IntoIterator<Item = RouterId>,
) -> Result<BTreeMap<RouterId, RouterPort>, Error> {
    let ports = fold(&rows_in(tx, GATEWAYS, routers)?)?;
    Ok(ports.into_iter().map(|port| (port.router, port)).collect())
}

/// A router interface on a subnet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OnSubnet {
    pub port: PortId,
    pub address: IpAddr,
}

/// The router interfaces on a subnet.
pub(crate) fn on_subnet(tx: &mut Tx<'_>, subnet: SubnetId) -> Result<Vec<OnSubnet>, Error> {
    let read = |row: &Row| {
        Ok(OnSubnet { port: row.id("port_id")?, address: parsed(row.text("address")?)? })
    };
    tx.rows(ON_SUBNET, params![subnet])?.iter().map(read).collect()
}

/// The routers between a subnet and an external network, with their addresses on the subnet.
pub(crate) fn between(
    tx: &mut Tx<'_>,
    subnet: SubnetId,
    external: NetworkId,
) -> Result<Vec<(RouterId, IpAddr)>, Error> {
    let read = |row: &Row| Ok((row.id("router_id")?, parsed(row.text("address")?)?));
    tx.rows(BETWEEN, params![subnet, external])?.iter().map(read).collect()
}

/// True if a router's gateway or a floating IP is on the network.
pub(crate) fn uses_external(tx: &mut Tx<'_>, network: NetworkId) -> Result<bool, Error> {
    Ok(tx.row(GATEWAY_ON, params![network])?.is_some()
        || tx.row(FLOATING_ON, params![network])?.is_some())
}

/// The gateway host of a router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// No host: the router has no ports or was deleted.
    Nowhere,
    /// The router waits for a host.
    Waiting,
    /// The router is on this host.
    On(HostName),
}

/// The place of a router, which may have been deleted.
pub(crate) fn place(tx: &mut Tx<'_>, router: RouterId) -> Result<Place, Error> {
    let Some(row) = tx.row(PLACE, params![router])? else { return Ok(Place::Nowhere) };
    let host = row.host("host")?;
    Ok(if host.is_empty() { Place::Waiting } else { Place::On(host) })
}

/// Binds a new port of a router to the router's host; a router without a host starts waiting for
/// one.
pub(crate) fn bind_new(
    tx: &mut Tx<'_>,
    router: RouterId,
    now: jiff::Timestamp,
) -> Result<(), Error> {
    match place(tx, router)? {
        Place::On(host) => bind(tx, router, host.as_str(), now),
        Place::Waiting => Ok(()),
        Place::Nowhere => tx.defer(NEED_PLACE, params![router]),
    }
}

/// Sets the place of a router, and binds its ports accordingly.
pub(crate) fn set_place(
    tx: &mut Tx<'_>,
    router: RouterId,
    place: &Place,
    now: jiff::Timestamp,
) -> Result<(), Error> {
    let host = match place {
        Place::Nowhere => {
            tx.defer(FORGET_PLACE, params![router])?;
            ""
        }
        Place::Waiting => {
            tx.defer(SET_PLACE, params![router, ""])?;
            ""
        }
        Place::On(host) => {
            tx.defer(SET_PLACE, params![router, host])?;
            host.as_str()
        }
    };
    bind(tx, router, host, now)
}

fn bind(tx: &mut Tx<'_>, router: RouterId, host: &str, now: jiff::Timestamp) -> Result<(), Error> {
    tx.defer(BIND, params![router, host, now])
}

/// The next routers, by id, that wait for a host or are on one of these hosts; at most [`PAGE`].
pub(crate) fn next(
    tx: &mut Tx<'_>,
    hosts: &[HostName],
    after: Option<RouterId>,
) -> Result<Vec<RouterId>, Error> {
    let after = after.map(|id| id.to_string()).unwrap_or_default();
    let most = i64::try_from(PAGE).unwrap_or(i64::MAX);
    let mut asked = Vec::new();
    for host in iter::once("").chain(hosts.iter().map(HostName::as_str)) {
        asked.push(tx.ask(ON_HOST, params![host, &after, most])?);
    }
    let rows = tx.answers(asked)?;
    let all: Result<BTreeSet<RouterId>, Error> =
        rows.iter().map(|row| row.id("router_id")).collect();
    Ok(all?.into_iter().take(PAGE).collect())
}

/// The bodies of the networks of some routers.
pub(crate) fn networks_of(
    tx: &mut Tx<'_>,
    routers: &[RouterId],
) -> Result<Vec<(RouterId, crate::record::Body)>, Error> {
    let ids: Vec<Value> = routers.iter().map(|id| Value::from(*id)).collect();
    let asked = tx.ask_list(NETWORKS_OF, &ids)?;
    let read = |row: &Row| Ok((row.id("router_id")?, super::parse(row.text("body")?)?));
    tx.answers(asked)?.iter().map(read).collect()
}

/// Makes the routers of a host that is being deleted wait for another host.
pub(crate) fn unplace_routers_of(
    tx: &mut Tx<'_>,
    host: &HostName,
    now: jiff::Timestamp,
) -> Result<(), Error> {
    // Conflicts with a concurrent transaction that binds a new port to this host, because that
    // transaction also writes the router's row.
    tx.defer(TOUCH_OF_HOST, params![host])?;
    tx.defer(UNBIND_HOST, params![host, now])?;
    tx.defer(UNPLACE_ROUTERS, params![host])
}

/// The number of routers on each host that has any.
pub(crate) fn load(tx: &mut Tx<'_>) -> Result<BTreeMap<HostName, i64>, Error> {
    let read = |row: &Row| Ok((row.host("host")?, row.int("routers")?));
    tx.rows(LOAD, params![])?.iter().map(read).collect()
}

/// The bodies of a router's networks.
pub(crate) fn networks(
    tx: &mut Tx<'_>,
    router: RouterId,
) -> Result<Vec<crate::record::Body>, Error> {
    tx.rows(NETWORKS, params![router])?.iter().map(|row| super::parse(row.text("body")?)).collect()
}

/// The routers with a port on a network.
pub(crate) fn on_network(tx: &mut Tx<'_>, network: NetworkId) -> Result<BTreeSet<RouterId>, Error> {
    tx.rows(ON_NETWORK, params![network])?.iter().map(|row| row.id("router_id")).collect()
}
