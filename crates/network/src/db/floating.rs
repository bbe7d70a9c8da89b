//! Rows of `floating_ips`. On its external network, a floating IP has a port of its own that reserves the address.
//! It has at most one fixed address, which is reached through a router.

use std::net::IpAddr;

use jiff::Timestamp;
use kilonova_ids::{FloatingIpId, FloatingIpKind, NetworkId, PortId, RouterId, ServerId, SubnetId};
use kilonova_store::{Error, Row, Tx, params, statements};

use super::routers::parsed;
use super::{record, text};
use crate::record::Record;

/// A floating IP.
#[derive(Debug, Clone)]
pub(crate) struct FloatingIp {
    pub record: Record<FloatingIpKind>,
    pub network: NetworkId,
    pub reserving_port: PortId,
    pub address: IpAddr,
    pub fixed: Option<Association>,
    /// True if the router has a host.
    pub placed: bool,
}

/// The fixed address behind a floating IP, and the router between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Association {
    pub port: PortId,
    pub address: IpAddr,
    pub router: RouterId,
}

/// The columns of a [`FloatingIp`].
macro_rules! columns {
    () => {
        concat!(
            record_columns!("f"),
            ", f.network_id, f.own_port, f.address, f.port_id, f.fixed_address, f.router_id,
            EXISTS (SELECT 1 FROM router_places h WHERE h.router_id = f.router_id
            AND h.host <> '') AS placed"
        )
    };
}

/// Disassociates the floating IPs that match a condition.
macro_rules! disassociate {
    ($ports:literal) => {
        concat!(
            "UPDATE floating_ips SET port_id = NULL, fixed_address = NULL, router_id = NULL,
            revision = revision + 1, updated_at = ?2 WHERE ",
            $ports
        )
    };
}

/// Records a change to the routers of the floating IPs that match a condition.
macro_rules! record_routers {
    ($ports:literal) => {
        concat!(
            "INSERT INTO network_changes (kind, id) SELECT 'router', router_id FROM floating_ips
            WHERE router_id IS NOT NULL AND ",
            $ports
        )
    };
}

statements! {
    /// Adds a floating IP.
    INSERT = "INSERT INTO floating_ips (id, project_id, network_id, own_port, address, port_id,
        fixed_address, router_id, body, revision, created_at, updated_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
    /// Updates the mutable columns.
    UPDATE = "UPDATE floating_ips SET port_id = ?2, fixed_address = ?3, router_id = ?4, body = ?5,
        revision = ?6, updated_at = ?7 WHERE id = ?1";
    /// One floating IP.
    FIND = concat!("SELECT ", columns!(), " FROM floating_ips f WHERE f.id = ?1");
    /// The floating IPs of a project, or all.
    LIST = concat!(
        "SELECT ",
        columns!(),
        " FROM floating_ips f WHERE CAST(?1 AS TEXT) IS NULL OR f.project_id = ?1 ORDER BY f.seq"
    );
    /// Deletes a floating IP.
    DELETE = "DELETE FROM floating_ips WHERE id = ?1";
    /// The floating IP that a port reserves.
    OF_OWN_PORT = "SELECT id FROM floating_ips WHERE own_port = ?1";
    /// The floating IP on an external network that is associated with a fixed address.
    OF_FIXED = "SELECT id FROM floating_ips WHERE port_id = ?1 AND fixed_address = ?2
        AND network_id = ?3";
    /// A floating IP that a router translates for one of its subnets.
    OF_ROUTER_ON_SUBNET = "SELECT f.id FROM floating_ips f JOIN port_addresses a ON a.port_id = f.port_id
        AND a.address = f.fixed_address WHERE f.router_id = ?1 AND a.subnet_id = ?2 LIMIT 1";
    /// A floating IP that a router translates.
    OF_ROUTER = "SELECT id FROM floating_ips WHERE router_id = ?1 LIMIT 1";
    /// Disassociates the floating IPs from a port.
    RELEASE_PORT = disassociate!("port_id = ?1");
    /// Disassociates the floating IPs from fixed addresses that a port no longer has.
    RELEASE_LOST = disassociate!("port_id = ?1 AND NOT EXISTS (SELECT 1 FROM port_addresses a
        WHERE a.port_id = floating_ips.port_id AND a.address = floating_ips.fixed_address)");
    /// Disassociates the floating IPs from the ports created for a server.
    RELEASE_SERVER = disassociate!("port_id IN (SELECT id FROM ports WHERE made_for = ?1)");
    /// Records a change to the routers that translate a port's addresses.
    RECORD_PORT = record_routers!("port_id = ?1");
    /// Records a change to a port with a floating IP, because the guest's metadata contains that address.
    RECORD_GUEST = "INSERT INTO network_changes (kind, id) SELECT 'port', port_id FROM floating_ips
        WHERE port_id = ?1";
    /// Records a change to the routers that translate addresses of the ports created for a server.
    RECORD_SERVER = record_routers!("port_id IN (SELECT id FROM ports WHERE made_for = ?1)");
    /// Makes the transaction conflict with a concurrent deletion of a port.
    TOUCH_PORT = "UPDATE ports SET revision = revision WHERE id = ?1";
}

fn read(row: &Row) -> Result<FloatingIp, Error> {
    let fixed =
        match (row.id_opt("port_id")?, row.text_opt("fixed_address")?, row.id_opt("router_id")?) {
            (Some(port), Some(address), Some(router)) => {
                Some(Association { port, address: parsed(address)?, router })
            }
            (None, None, None) => None,
            _ => {
                return Err(Error::Shape("a floating IP with only part of an association".into()));
            }
        };
    Ok(FloatingIp {
        record: record(row)?,
        network: row.id("network_id")?,
        reserving_port: row.id("own_port")?,
        address: parsed(row.text("address")?)?,
        fixed,
        placed: row.bool("placed")?,
    })
}

pub(crate) fn insert(tx: &mut Tx<'_>, floating: &FloatingIp) -> Result<(), Error> {
    let (record, fixed) = (&floating.record, floating.fixed);
    let values = params![
        record.id,
        &record.project,
        floating.network,
        floating.reserving_port,
        floating.address.to_string(),
        fixed.map(|fixed| fixed.port),
        fixed.map(|fixed| fixed.address.to_string()),
        fixed.map(|fixed| fixed.router),
        text(&record.body)?,
        record.revision,
        record.created_at,
        record.updated_at,
    ];
    tx.execute(INSERT, values).map(|_| ())
}

pub(crate) fn update(tx: &mut Tx<'_>, floating: &FloatingIp) -> Result<(), Error> {
    let (record, fixed) = (&floating.record, floating.fixed);
    let values = params![
        record.id,
        fixed.map(|fixed| fixed.port),
        fixed.map(|fixed| fixed.address.to_string()),
        fixed.map(|fixed| fixed.router),
        text(&record.body)?,
        record.revision,
        record.updated_at,
    ];
    tx.execute(UPDATE, values).map(|_| ())
}

pub(crate) fn find(tx: &mut Tx<'_>, id: FloatingIpId) -> Result<Option<FloatingIp>, Error> {
    tx.row(FIND, params![id])?.as_ref().map(read).transpose()
}

/// The floating IPs of a project, or all.
pub(crate) fn list(tx: &mut Tx<'_>, project: Option<&str>) -> Result<Vec<FloatingIp>, Error> {
    tx.rows(LIST, params![project])?.iter().map(read).collect()
}

pub(crate) fn delete(tx: &mut Tx<'_>, id: FloatingIpId) -> Result<(), Error> {
    tx.execute(DELETE, params![id]).map(|_| ())
}

/// True if the port reserves a floating IP.
pub(crate) fn reserves(tx: &mut Tx<'_>, port: PortId) -> Result<bool, Error> {
    Ok(tx.row(OF_OWN_PORT, params![port])?.is_some())
}

/// The floating IP on an external network that is associated with a fixed address.
pub(crate) fn of_fixed(
    tx: &mut Tx<'_>,
    port: PortId,
    address: IpAddr,
    external: NetworkId,
) -> Result<Option<FloatingIpId>, Error> {
    let row = tx.row(OF_FIXED, params![port, address.to_string(), external])?;
    row.map(|row| row.id("id")).transpose()
}

/// True if a router translates a floating IP; with a subnet, only fixed addresses on that subnet count.
pub(crate) fn is_used_by_router(
    tx: &mut Tx<'_>,
    router: RouterId,
    subnet: Option<SubnetId>,
) -> Result<bool, Error> {
    let row = match subnet {
        Some(subnet) => tx.row(OF_ROUTER_ON_SUBNET, params![router, subnet])?,
        None => tx.row(OF_ROUTER, params![router])?,
    };
    Ok(row.is_some())
}

/// Disassociates the floating IPs from a port that is being deleted.
pub(crate) fn release_port(tx: &mut Tx<'_>, port: PortId, now: Timestamp) -> Result<(), Error> {
    tx.defer(RECORD_PORT, params![port])?;
    tx.defer(RELEASE_PORT, params![port, now])
}

/// Disassociates the floating IPs from fixed addresses that a port no longer has.
pub(crate) fn release_lost(tx: &mut Tx<'_>, port: PortId, now: Timestamp) -> Result<(), Error> {
    tx.defer(RECORD_PORT, params![port])?;
    tx.defer(RECORD_GUEST, params![port])?;
    tx.defer(RELEASE_LOST, params![port, now])
}

/// Disassociates the floating IPs from the ports created for a server, which are being
/// deleted.
pub(crate) fn release_server(
    tx: &mut Tx<'_>,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(RECORD_SERVER, params![server])?;
    tx.defer(RELEASE_SERVER, params![server, now])
}

/// Makes the transaction conflict with a concurrent deletion of the port to which a floating IP is being associated.
pub(crate) fn touch_port(tx: &mut Tx<'_>, port: PortId) -> Result<(), Error> {
    tx.defer(TOUCH_PORT, params![port])
}
