//! Rows of `ports` and `port_addresses`. Only the compute service sets `server_id`, `made_for` (the
//! server that the port was created for and is deleted with) and `arq_id`.

use std::collections::HashSet;
use std::net::IpAddr;

use jiff::Timestamp;
use kilonova_ids::{
    ArqId, HostName, NetworkId, PortId, PortKind, SecurityGroupId, ServerId, SubnetId,
};
use kilonova_store::{Asked, Error, Row, Tx, Value, params, statements};

use super::{changes, floating, record, rows_in, text};
use crate::VnicType;
use crate::address::{self, Range};
use crate::record::{Body, Record};

/// A port with its addresses.
#[derive(Debug, Clone)]
pub(crate) struct Port {
    pub record: Record<PortKind>,
    pub network: NetworkId,
    pub mac: String,
    pub device_id: String,
    /// The host that it is bound to.
    pub host: Option<HostName>,
    /// The `binding:vnic_type` in the body.
    pub vnic_type: VnicType,
    pub server: Option<ServerId>,
    pub made_for: Option<ServerId>,
    /// The position of this port among the ports of its server.
    pub ordinal: i64,
    pub arq: Option<ArqId>,
    pub pci_slot: Option<String>,
    /// The device tag that the guest's metadata shows.
    pub tag: Option<String>,
    pub addresses: Vec<(SubnetId, IpAddr)>,
}

impl Port {
    /// Detaches the port from its server and clears `device_owner`, on which the delete rule depends.
    pub fn detach(&mut self, now: Timestamp) {
        self.device_id.clear();
        self.host = None;
        (self.server, self.arq, self.pci_slot, self.tag) = (None, None, None, None);
        let mut body = Body::new();
        body.insert("device_owner".into(), "".into());
        self.record.change(body, now);
    }
}

/// Conditions of a port list; all must hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct PortQuery {
    /// The project that lists ports; `None` lists the ports of all projects.
    pub viewer: Option<String>,
    pub device: Option<String>,
    pub network: Option<String>,
}

/// The columns of a [`Port`]. A port has one row for each of its addresses, or one row without an address.
macro_rules! columns {
    () => {
        concat!(
            record_columns!("p"),
            ", p.network_id, p.mac, p.device_id, p.host, p.server_id, p.made_for, p.ordinal,
            p.arq_id, p.pci_slot, p.tag, a.subnet_id, a.address"
        )
    };
}

statements! {
    /// Adds a port, unless its MAC address already exists on the network.
    INSERT = "INSERT INTO ports (id, project_id, network_id, mac, device_id, host, server_id,
        made_for, ordinal, arq_id, pci_slot, tag, body, revision, created_at, updated_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)
        ON CONFLICT (network_id, mac) DO NOTHING RETURNING id";
    /// Updates the mutable columns.
    UPDATE = "UPDATE ports SET mac = ?2, device_id = ?3, host = ?4, server_id = ?5, made_for = ?6,
        ordinal = ?7, arq_id = ?8, pci_slot = ?9, tag = ?10, body = ?11, revision = ?12,
        updated_at = ?13
        WHERE id = ?1";
    /// One port with its addresses.
    FIND = concat!(
        "SELECT ",
        columns!(),
        " FROM ports p LEFT JOIN port_addresses a ON a.port_id = p.id
        WHERE p.id = ?1 ORDER BY a.ordinal"
    );
    /// Ports with their addresses.
    BY_IDS = concat!(
        "SELECT ",
        columns!(),
        " FROM ports p LEFT JOIN port_addresses a ON a.port_id = p.id
        WHERE p.id IN ({}) ORDER BY p.seq, a.ordinal"
    );
    /// The ports of a server.
    OF_SERVER = concat!(
        "SELECT ",
        columns!(),
        " FROM ports p LEFT JOIN port_addresses a ON a.port_id = p.id
        WHERE p.server_id = ?1 ORDER BY p.ordinal, p.seq, a.ordinal"
    );
    /// Ports of a project and ports on its networks.
    LIST = concat!(
        "SELECT ",
        columns!(),
        " FROM ports p JOIN networks n ON n.id = p.network_id
        LEFT JOIN port_addresses a ON a.port_id = p.id
        WHERE (CAST(?1 AS TEXT) IS NULL OR p.project_id = ?1 OR n.project_id = ?1)
          AND (CAST(?2 AS TEXT) IS NULL OR p.device_id = ?2)
          AND (CAST(?3 AS TEXT) IS NULL OR p.network_id = ?3)
        ORDER BY p.seq, a.ordinal"
    );
    /// Servers with a matching address.
    SERVERS_AT = "SELECT DISTINCT p.server_id FROM port_addresses a JOIN ports p ON p.id = a.port_id
        WHERE p.server_id IS NOT NULL AND a.address LIKE ?1 ESCAPE '\\'";
    /// Up to ten ports on a network.
    ON_NETWORK = "SELECT id FROM ports WHERE network_id = ?1 ORDER BY mac LIMIT 10";
    /// A port on a network that is bound to a host.
    BOUND_ON_NETWORK = "SELECT id FROM ports WHERE network_id = ?1 AND host <> '' LIMIT 1";
    /// A port in a security group.
    WITH_GROUP = "SELECT port_id FROM port_groups WHERE group_id = ?1 LIMIT 1";
    /// The allocated addresses in a range.
    ALLOCATED = "SELECT address_key FROM port_addresses WHERE subnet_id = ?1 AND address_key >= ?2
        AND address_key <= ?3 ORDER BY address_key LIMIT 256";
    /// Allocates an address if it is free.
    ALLOCATE = "INSERT INTO port_addresses (subnet_id, address_key, port_id, ordinal, address)
        VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (subnet_id, address_key) DO NOTHING
        RETURNING port_id";
    /// Allocates addresses, except those in use.
    ALLOCATE_ALL = "INSERT INTO port_addresses (subnet_id, address_key, port_id, ordinal, address)
        VALUES ({}, {}, {}, {}, {}) ON CONFLICT (subnet_id, address_key) DO NOTHING
        RETURNING address";
    /// A port with an address on the subnet.
    ON_SUBNET = "SELECT port_id FROM port_addresses WHERE subnet_id = ?1 LIMIT 1";
    /// Releases the addresses of a port.
    RELEASE = "DELETE FROM port_addresses WHERE port_id = ?1";
    /// Releases a port's addresses on a subnet.
    RELEASE_ON = "DELETE FROM port_addresses WHERE port_id = ?1 AND subnet_id = ?2";
    /// Counts a change to a port's addresses as a change to the port.
    REVISE = "UPDATE ports SET revision = revision + 1, updated_at = ?2 WHERE id = ?1";
    /// Counts a change to the addresses on a subnet as a change to their ports.
    REVISE_ON_SUBNET = "UPDATE ports SET revision = revision + 1, updated_at = ?2
        WHERE id IN (SELECT port_id FROM port_addresses WHERE subnet_id = ?1)";
    /// Releases all addresses of a subnet.
    RELEASE_SUBNET = "DELETE FROM port_addresses WHERE subnet_id = ?1";
    /// Deletes a port.
    DELETE = "DELETE FROM ports WHERE id = ?1";
    /// Binds a server's ports to a host and clears their devices.
    BIND = "UPDATE ports SET host = ?2, arq_id = NULL, pci_slot = NULL, updated_at = ?3,
        revision = revision + 1 WHERE server_id = ?1";
    /// Sets the device of a port.
    SET_DEVICE = "UPDATE ports SET arq_id = ?3, pci_slot = ?4 WHERE id = ?1 AND server_id = ?2";
    /// Releases the addresses of the ports created for a server.
    RELEASE_OF_SERVER = "DELETE FROM port_addresses WHERE port_id IN
        (SELECT id FROM ports WHERE made_for = ?1)";
    /// Deletes the ports created for a server.
    DELETE_OF_SERVER = "DELETE FROM ports WHERE made_for = ?1";
}

/// The host that a port is bound to. The column of an unbound port is empty.
pub(super) fn bound_host(row: &Row) -> Result<Option<HostName>, Error> {
    Ok(Some(row.host("host")?).filter(|host| !host.is_empty()))
}

fn host_column(host: Option<&HostName>) -> &str {
    host.map_or("", HostName::as_str)
}

fn fold(rows: &[Row]) -> Result<Vec<Port>, Error> {
    let mut ports: Vec<Port> = Vec::new();
    for row in rows {
        let id: PortId = row.id("id")?;
        if ports.last().is_none_or(|last| last.record.id != id) {
            let record = record(row)?;
            ports.push(Port {
                vnic_type: VnicType::of(&record.body)?,
                record,
                network: row.id("network_id")?,
                mac: row.string("mac")?,
                device_id: row.string("device_id")?,
                host: bound_host(row)?,
                server: row.id_opt("server_id")?,
                made_for: row.id_opt("made_for")?,
                ordinal: row.int("ordinal")?,
                arq: row.id_opt("arq_id")?,
                pci_slot: row.string_opt("pci_slot")?,
                tag: row.string_opt("tag")?,
                addresses: Vec::new(),
            });
        }
        if let (Some(subnet), Some(address)) = (row.id_opt("subnet_id")?, row.text_opt("address")?)
        {
            let address =
                address.parse().map_err(|_| Error::Shape(format!("address {address}")))?;
            if let Some(port) = ports.last_mut() {
                port.addresses.push((subnet, address));
            }
        }
    }
    Ok(ports)
}

/// Asks to insert a port without its addresses. [`is_done`] then returns false if the MAC address is in use.
pub(crate) fn ask_insert(tx: &mut Tx<'_>, port: &Port) -> Result<Asked, Error> {
    let record = &port.record;
    let values = params![
        record.id,
        &record.project,
        port.network,
        &port.mac,
        &port.device_id,
        host_column(port.host.as_ref()),
        port.server,
        port.made_for,
        port.ordinal,
        port.arq,
        port.pci_slot.clone(),
        port.tag.clone(),
        text(&record.body)?,
        record.revision,
        record.created_at,
        record.updated_at,
    ];
    tx.ask(INSERT, values)
}

/// True if the statement of `asked` wrote its row.
pub(crate) fn is_done(tx: &mut Tx<'_>, asked: Asked) -> Result<bool, Error> {
    Ok(tx.answer_row(asked)?.is_some())
}

fn mutable(port: &Port) -> Result<Vec<Value>, Error> {
    let record = &port.record;
    let values = params![
        record.id,
        &port.mac,
        &port.device_id,
        host_column(port.host.as_ref()),
        port.server,
        port.made_for,
        port.ordinal,
        port.arq,
        port.pci_slot.clone(),
        port.tag.clone(),
        text(&record.body)?,
        record.revision,
        record.updated_at,
    ];
    Ok(values.to_vec())
}

/// Updates a port's row, but not its addresses.
pub(crate) fn update(tx: &mut Tx<'_>, port: &Port) -> Result<(), Error> {
    tx.execute(UPDATE, &mutable(port)?).map(|_| ())
}

/// [`update`] for a port that keeps its MAC address, so that no unique key can be violated.
pub(crate) fn defer_update(tx: &mut Tx<'_>, port: &Port) -> Result<(), Error> {
    tx.defer(UPDATE, &mutable(port)?)
}

/// Announces [`find`].
pub(crate) fn expect(tx: &mut Tx<'_>, id: PortId) -> Result<(), Error> {
    tx.expect(FIND, params![id])
}

pub(crate) fn find(tx: &mut Tx<'_>, id: PortId) -> Result<Option<Port>, Error> {
    Ok(fold(&tx.rows(FIND, params![id])?)?.pop())
}

/// Ports by id.
pub(crate) fn by_ids(
    tx: &mut Tx<'_>,
    ids: impl IntoIterator<Item = PortId>,
) -> Result<Vec<Port>, Error> {
    fold(&rows_in(tx, BY_IDS, ids)?)
}

pub(crate) fn of_server(tx: &mut Tx<'_>, server: ServerId) -> Result<Vec<Port>, Error> {
    fold(&tx.rows(OF_SERVER, params![server])?)
}

pub(crate) fn list(tx: &mut Tx<'_>, query: &PortQuery) -> Result<Vec<Port>, Error> {
    let PortQuery { viewer, device, network } = query.clone();
    fold(&tx.rows(LIST, params![viewer, device, network])?)
}

/// Servers with an address that contains this text, which must not contain `%`, `_` or `\`.
pub(crate) fn servers_at(tx: &mut Tx<'_>, text: &str) -> Result<HashSet<ServerId>, Error> {
    let rows = tx.rows(SERVERS_AT, params![format!("%{text}%")])?;
    rows.iter().map(|row| row.id("server_id")).collect()
}

/// Up to ten ports on a network.
pub(crate) fn on_network(tx: &mut Tx<'_>, network: NetworkId) -> Result<Vec<String>, Error> {
    tx.rows(ON_NETWORK, params![network])?.iter().map(|row| row.string("id")).collect()
}

/// True if a port on the network is bound to a host.
pub(crate) fn has_bound(tx: &mut Tx<'_>, network: NetworkId) -> Result<bool, Error> {
    Ok(tx.row(BOUND_ON_NETWORK, params![network])?.is_some())
}

/// True if a port is in the security group.
pub(crate) fn has_group(tx: &mut Tx<'_>, group: SecurityGroupId) -> Result<bool, Error> {
    Ok(tx.row(WITH_GROUP, params![group])?.is_some())
}

/// The allocated addresses in a range, as numbers in ascending order; at most 256.
pub(crate) fn allocated(
    tx: &mut Tx<'_>,
    subnet: SubnetId,
    range: Range,
) -> Result<Vec<u128>, Error> {
    let (first, last) = (address::key(range.first), address::key(range.last));
    let rows = tx.rows(ALLOCATED, params![subnet, first, last])?;
    rows.iter().map(|row| address::number_of(row.text("address_key")?)).collect()
}

/// Announces [`allocated`].
pub(crate) fn expect_allocated(
    tx: &mut Tx<'_>,
    subnet: SubnetId,
    range: Range,
) -> Result<(), Error> {
    let (first, last) = (address::key(range.first), address::key(range.last));
    tx.expect(ALLOCATED, params![subnet, first, last])
}

/// Asks for [`allocate`]; [`is_done`] reads the answer.
pub(crate) fn ask_allocate(
    tx: &mut Tx<'_>,
    port: PortId,
    ordinal: usize,
    subnet: SubnetId,
    ip: IpAddr,
) -> Result<Asked, Error> {
    let key = address::key(address::number(ip));
    let ordinal = i64::try_from(ordinal).unwrap_or(i64::MAX);
    tx.ask(ALLOCATE, params![subnet, key, port, ordinal, ip.to_string()])
}

/// Allocates an address; `false` if it is in use.
pub(crate) fn allocate(
    tx: &mut Tx<'_>,
    port: PortId,
    ordinal: usize,
    subnet: SubnetId,
    ip: IpAddr,
) -> Result<bool, Error> {
    let asked = ask_allocate(tx, port, ordinal, subnet, ip)?;
    is_done(tx, asked)
}

/// Allocates addresses of a subnet to ports at these ordinals. Returns an address that is already in use, if there is
/// one.
pub(crate) fn allocate_all(
    tx: &mut Tx<'_>,
    subnet: SubnetId,
    all: &[(PortId, usize, IpAddr)],
) -> Result<Option<IpAddr>, Error> {
    let row = |(port, ordinal, ip): &(PortId, usize, IpAddr)| {
        let ordinal = i64::try_from(*ordinal).unwrap_or(i64::MAX);
        let key = address::key(address::number(*ip));
        [subnet.into(), key.into(), (*port).into(), ordinal.into(), ip.to_string().into()]
    };
    let rows: Vec<[Value; 5]> = all.iter().map(row).collect();
    let asked = tx.ask_rows(ALLOCATE_ALL, &rows)?;
    let done = tx.answers(asked)?;
    let done: HashSet<&str> =
        done.iter().map(|row| row.text("address")).collect::<Result<_, _>>()?;
    Ok(all.iter().map(|(_, _, ip)| *ip).find(|ip| !done.contains(ip.to_string().as_str())))
}

/// True if a port has an address on the subnet.
pub(crate) fn on_subnet(tx: &mut Tx<'_>, subnet: SubnetId) -> Result<bool, Error> {
    Ok(tx.row(ON_SUBNET, params![subnet])?.is_some())
}

pub(crate) fn release(tx: &mut Tx<'_>, port: PortId) -> Result<(), Error> {
    tx.defer(RELEASE, params![port])
}

pub(crate) fn release_on(tx: &mut Tx<'_>, port: PortId, subnet: SubnetId) -> Result<(), Error> {
    tx.defer(RELEASE_ON, params![port, subnet])
}

/// Counts a change to a port's addresses as a change to the port (`revises_on_change` of `neutron/db/models_v2.py`).
pub(crate) fn revise(tx: &mut Tx<'_>, port: PortId, now: Timestamp) -> Result<(), Error> {
    tx.defer(REVISE, params![port, now])
}

/// [`revise`] for all ports that have an address on the subnet.
pub(crate) fn revise_on_subnet(
    tx: &mut Tx<'_>,
    subnet: SubnetId,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(REVISE_ON_SUBNET, params![subnet, now])
}

/// Releases all addresses of a subnet.
pub(crate) fn release_subnet(tx: &mut Tx<'_>, subnet: SubnetId) -> Result<(), Error> {
    tx.defer(RELEASE_SUBNET, params![subnet])
}

/// Deletes a port, releases its addresses and disassociates its floating IPs.
pub(crate) fn delete(tx: &mut Tx<'_>, port: PortId, now: Timestamp) -> Result<(), Error> {
    changes::record_port_deletion(tx, port)?;
    floating::release_port(tx, port, now)?;
    release(tx, port)?;
    tx.defer(DELETE, params![port])
}

/// Binds the server's ports to a host, or unbinds them, and clears their devices.
pub(crate) fn bind(
    tx: &mut Tx<'_>,
    server: ServerId,
    host: Option<&HostName>,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(BIND, params![server, host_column(host), now])
}

pub(crate) fn set_device(
    tx: &mut Tx<'_>,
    server: ServerId,
    port: PortId,
    arq: ArqId,
    slot: &str,
) -> Result<(), Error> {
    tx.defer(SET_DEVICE, params![port, server, arq, slot])
}

/// Deletes the ports created for the server and detaches the others.
pub(crate) fn detach_server(
    tx: &mut Tx<'_>,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    changes::record_server_deletion(tx, server)?;
    floating::release_server(tx, server, now)?;
    tx.defer(RELEASE_OF_SERVER, params![server])?;
    tx.defer(DELETE_OF_SERVER, params![server])?;
    for mut port in of_server(tx, server)? {
        port.detach(now);
        defer_update(tx, &port)?;
    }
    Ok(())
}
