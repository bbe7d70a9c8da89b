//! Rows of `subnets`. `cursor` is the key of the address that was given last; whoever takes the next
//! one writes it, so that two who choose at once do so one after the other.

use kilonova_ids::{NetworkId, SubnetId, SubnetKind};
use kilonova_store::{Error, Row, Tx, params, statements};

use super::{record, text};
use crate::record::Record;

/// A subnet and where it is.
#[derive(Debug, Clone)]
pub(crate) struct Subnet {
    pub record: Record<SubnetKind>,
    pub network: NetworkId,
    pub cursor: String,
}

statements! {
    /// A new one.
    INSERT = "INSERT INTO subnets (id, project_id, network_id, cursor, body, revision, created_at,
        updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    /// What a user may change.
    UPDATE = "UPDATE subnets SET body = ?2, revision = ?3, updated_at = ?4 WHERE id = ?1";
    /// The address given last.
    SET_CURSOR = "UPDATE subnets SET cursor = ?2 WHERE id = ?1";
    /// One.
    FIND = "SELECT id, project_id, body, revision, created_at, updated_at, network_id, cursor
        FROM subnets WHERE id = ?1";
    /// Those of a network.
    OF_NETWORK = "SELECT id, project_id, body, revision, created_at, updated_at, network_id, cursor
        FROM subnets WHERE network_id = ?1 ORDER BY seq";
    /// Those that a project sees; all without one.
    LIST = "SELECT s.id, s.project_id, s.body, s.revision, s.created_at, s.updated_at, s.network_id,
        s.cursor FROM subnets s JOIN networks n ON n.id = s.network_id
        WHERE CAST(?1 AS TEXT) IS NULL OR s.project_id = ?1 OR n.shared = 1 OR n.external = 1
        ORDER BY s.seq";
    /// How many addresses of a subnet are in use.
    USED = "SELECT COUNT(*) FROM port_addresses WHERE subnet_id = ?1";
    /// Gone.
    DELETE = "DELETE FROM subnets WHERE id = ?1";
}

fn read(row: &Row) -> Result<Subnet, Error> {
    Ok(Subnet { record: record(row, 0)?, network: row.id(6)?, cursor: row.string(7)? })
}

pub(crate) fn insert(tx: &mut Tx<'_>, subnet: &Subnet) -> Result<(), Error> {
    let record = &subnet.record;
    let values = params![
        record.id,
        &record.project,
        subnet.network,
        &subnet.cursor,
        text(&record.body)?,
        record.revision,
        record.created_at,
        record.updated_at,
    ];
    tx.execute(INSERT, values).map(|_| ())
}

pub(crate) fn update(tx: &mut Tx<'_>, record: &Record<SubnetKind>) -> Result<(), Error> {
    let values = params![record.id, text(&record.body)?, record.revision, record.updated_at];
    tx.execute(UPDATE, values).map(|_| ())
}

pub(crate) fn set_cursor(tx: &mut Tx<'_>, id: SubnetId, cursor: &str) -> Result<(), Error> {
    tx.execute(SET_CURSOR, params![id, cursor]).map(|_| ())
}

pub(crate) fn find(tx: &mut Tx<'_>, id: SubnetId) -> Result<Option<Subnet>, Error> {
    tx.row(FIND, params![id])?.as_ref().map(read).transpose()
}

pub(crate) fn of_network(tx: &mut Tx<'_>, network: NetworkId) -> Result<Vec<Subnet>, Error> {
    tx.rows(OF_NETWORK, params![network])?.iter().map(read).collect()
}

pub(crate) fn list(tx: &mut Tx<'_>, viewer: Option<&str>) -> Result<Vec<Subnet>, Error> {
    tx.rows(LIST, params![viewer])?.iter().map(read).collect()
}

/// How many addresses of a subnet are in use.
pub(crate) fn used(tx: &mut Tx<'_>, id: SubnetId) -> Result<i64, Error> {
    tx.row(USED, params![id])?.map_or(Ok(0), |row| row.int(0))
}

pub(crate) fn delete(tx: &mut Tx<'_>, id: SubnetId) -> Result<(), Error> {
    tx.execute(DELETE, params![id]).map(|_| ())
}
