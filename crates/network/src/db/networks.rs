//! Rows of `networks`. `segment` is unique: a flat network or VLAN on a physical network.

use kilonova_ids::{NetworkId, NetworkKind, PortId};
use kilonova_store::{Error, Row, Tx, params, statements};

use super::{record, text};
use crate::record::Record;

pub(crate) type Network = Record<NetworkKind>;

statements! {
    /// Adds a network.
    INSERT = "INSERT INTO networks (id, project_id, shared, segment, body, revision, created_at,
        updated_at, external) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    /// Updates the mutable columns.
    UPDATE = "UPDATE networks SET shared = ?2, body = ?3, revision = ?4, updated_at = ?5,
        external = ?6 WHERE id = ?1";
    /// Moves a network to another segment.
    SET_SEGMENT = "UPDATE networks SET segment = ?2 WHERE id = ?1";
    /// Makes the transaction conflict with every change to the network.
    TOUCH = "UPDATE networks SET revision = revision WHERE id = ?1";
    /// One network.
    FIND = concat!("SELECT ", record_columns!("n"), " FROM networks n WHERE n.id = ?1");
    /// The networks visible to a project, or all.
    LIST = concat!(
        "SELECT ",
        record_columns!("n"),
        " FROM networks n
        WHERE CAST(?1 AS TEXT) IS NULL OR n.project_id = ?1 OR n.shared = 1 OR n.external = 1
        ORDER BY n.seq"
    );
    /// The networks of a project and the shared networks, each with its first subnet.
    AVAILABLE = concat!(
        "SELECT ",
        record_columns!("n"),
        ", (SELECT MIN(s.seq) FROM subnets s WHERE s.network_id = n.id) AS first_subnet
        FROM networks n WHERE n.project_id = ?1 OR n.shared = 1 ORDER BY n.seq"
    );
    /// The segments in use on a physical network.
    SEGMENTS = "SELECT segment FROM networks WHERE segment LIKE ?1";
    /// The DHCP port of a network.
    DHCP_PORT = "SELECT dhcp_port FROM networks WHERE id = ?1";
    /// Sets the DHCP port.
    SET_DHCP_PORT = "UPDATE networks SET dhcp_port = ?2 WHERE id = ?1";
    /// Deletes a network.
    DELETE = "DELETE FROM networks WHERE id = ?1";
}

pub(crate) fn insert(tx: &mut Tx<'_>, network: &Network, segment: &str) -> Result<(), Error> {
    let values = params![
        network.id,
        &network.project,
        network.flag("shared"),
        segment,
        text(&network.body)?,
        network.revision,
        network.created_at,
        network.updated_at,
        network.flag("router:external"),
    ];
    tx.execute(INSERT, values).map(|_| ())
}

pub(crate) fn update(tx: &mut Tx<'_>, network: &Network) -> Result<(), Error> {
    let values = params![
        network.id,
        network.flag("shared"),
        text(&network.body)?,
        network.revision,
        network.updated_at,
        network.flag("router:external"),
    ];
    tx.execute(UPDATE, values).map(|_| ())
}

/// Moves a network to another segment, which must be free.
pub(crate) fn set_segment(tx: &mut Tx<'_>, id: NetworkId, segment: &str) -> Result<(), Error> {
    tx.execute(SET_SEGMENT, params![id, segment]).map(|_| ())
}

/// Makes the transaction conflict with every change to the network.
pub(crate) fn touch(tx: &mut Tx<'_>, id: NetworkId) -> Result<(), Error> {
    tx.defer(TOUCH, params![id])
}

/// Announces [`find`].
pub(crate) fn expect(tx: &mut Tx<'_>, id: NetworkId) -> Result<(), Error> {
    tx.expect(FIND, params![id])
}

/// Announces [`available`].
pub(crate) fn expect_available(tx: &mut Tx<'_>, project: &str) -> Result<(), Error> {
    tx.expect(AVAILABLE, params![project])
}

/// The networks that servers of a project may attach to, each paired with true if it has a subnet.
pub(crate) fn available(tx: &mut Tx<'_>, project: &str) -> Result<Vec<(Network, bool)>, Error> {
    let read = |row: &Row| Ok((record(row)?, row.int_opt("first_subnet")?.is_some()));
    tx.rows(AVAILABLE, params![project])?.iter().map(read).collect()
}

pub(crate) fn find(tx: &mut Tx<'_>, id: NetworkId) -> Result<Option<Network>, Error> {
    tx.row(FIND, params![id])?.as_ref().map(record).transpose()
}

/// The networks visible to a project, or all.
pub(crate) fn list(tx: &mut Tx<'_>, viewer: Option<&str>) -> Result<Vec<Network>, Error> {
    tx.rows(LIST, params![viewer])?.iter().map(record).collect()
}

/// Segments that begin with `prefix`.
pub(crate) fn segments(tx: &mut Tx<'_>, prefix: &str) -> Result<Vec<String>, Error> {
    let rows = tx.rows(SEGMENTS, params![format!("{prefix}%")])?;
    rows.iter().map(|row| row.string("segment")).collect()
}

/// The DHCP port of a network.
pub(crate) fn dhcp_port(tx: &mut Tx<'_>, id: NetworkId) -> Result<Option<PortId>, Error> {
    tx.row(DHCP_PORT, params![id])?.map_or(Ok(None), |row| row.id_opt("dhcp_port"))
}

pub(crate) fn set_dhcp_port(
    tx: &mut Tx<'_>,
    id: NetworkId,
    port: Option<PortId>,
) -> Result<(), Error> {
    tx.defer(SET_DHCP_PORT, params![id, port])
}

pub(crate) fn delete(tx: &mut Tx<'_>, id: NetworkId) -> Result<(), Error> {
    tx.execute(DELETE, params![id]).map(|_| ())
}
