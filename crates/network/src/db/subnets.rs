//! Rows of `subnets`. `cursor` is the key of the most recently allocated address. Every allocation
//! writes it, which serializes concurrent allocations.

use kilonova_ids::{NetworkId, SubnetId, SubnetKind};
use kilonova_store::{Asked, Error, Row, Tx, params, statements};

use super::{record, text};
use crate::record::Record;

/// A subnet, its network and its cursor.
#[derive(Debug, Clone)]
pub(crate) struct Subnet {
    pub record: Record<SubnetKind>,
    pub network: NetworkId,
    pub cursor: String,
}

/// The columns of a [`Subnet`].
macro_rules! columns {
    () => {
        concat!(record_columns!("s"), ", s.network_id, s.cursor")
    };
}

statements! {
    /// Adds a subnet.
    INSERT = "INSERT INTO subnets (id, project_id, network_id, cursor, body, revision, created_at,
        updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    /// Updates the mutable columns.
    UPDATE = "UPDATE subnets SET body = ?2, revision = ?3, updated_at = ?4 WHERE id = ?1";
    /// Makes the transaction conflict with every change to the subnet.
    TOUCH = "UPDATE subnets SET revision = revision WHERE id = ?1";
    /// Sets the key of the most recently allocated address.
    SET_CURSOR = "UPDATE subnets SET cursor = ?2 WHERE id = ?1";
    /// One subnet.
    FIND = concat!("SELECT ", columns!(), " FROM subnets s WHERE s.id = ?1");
    /// The subnets of a network.
    OF_NETWORK = concat!(
        "SELECT ",
        columns!(),
        " FROM subnets s WHERE s.network_id = ?1 ORDER BY s.seq"
    );
    /// The subnets visible to a project, or all.
    LIST = concat!(
        "SELECT ",
        columns!(),
        " FROM subnets s JOIN networks n ON n.id = s.network_id
        WHERE CAST(?1 AS TEXT) IS NULL OR s.project_id = ?1 OR n.shared = 1 OR n.external = 1
        ORDER BY s.seq"
    );
    /// The number of allocated addresses of a subnet.
    USED = "SELECT COUNT(*) AS used FROM port_addresses WHERE subnet_id = ?1";
    /// Deletes a subnet.
    DELETE = "DELETE FROM subnets WHERE id = ?1";
}

fn read(row: &Row) -> Result<Subnet, Error> {
    Ok(Subnet {
        record: record(row)?,
        network: row.id("network_id")?,
        cursor: row.string("cursor")?,
    })
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

/// Makes the transaction conflict with every change to the subnet.
pub(crate) fn touch(tx: &mut Tx<'_>, id: SubnetId) -> Result<(), Error> {
    tx.defer(TOUCH, params![id])
}

pub(crate) fn set_cursor(tx: &mut Tx<'_>, id: SubnetId, cursor: &str) -> Result<(), Error> {
    tx.defer(SET_CURSOR, params![id, cursor])
}

pub(crate) fn find(tx: &mut Tx<'_>, id: SubnetId) -> Result<Option<Subnet>, Error> {
    tx.row(FIND, params![id])?.as_ref().map(read).transpose()
}

/// Announces [`of_network`].
pub(crate) fn expect_of_network(tx: &mut Tx<'_>, id: NetworkId) -> Result<(), Error> {
    tx.expect(OF_NETWORK, params![id])
}

/// Asks for [`of_network`]; [`found`] reads the answer.
pub(crate) fn ask_of_network(tx: &mut Tx<'_>, id: NetworkId) -> Result<Asked, Error> {
    tx.ask(OF_NETWORK, params![id])
}

/// The subnets that [`ask_of_network`] requested.
pub(crate) fn found(tx: &mut Tx<'_>, asked: Asked) -> Result<Vec<Subnet>, Error> {
    tx.answer(asked)?.iter().map(read).collect()
}

pub(crate) fn of_network(tx: &mut Tx<'_>, network: NetworkId) -> Result<Vec<Subnet>, Error> {
    tx.rows(OF_NETWORK, params![network])?.iter().map(read).collect()
}

pub(crate) fn list(tx: &mut Tx<'_>, viewer: Option<&str>) -> Result<Vec<Subnet>, Error> {
    tx.rows(LIST, params![viewer])?.iter().map(read).collect()
}

/// The number of allocated addresses of a subnet.
pub(crate) fn used(tx: &mut Tx<'_>, id: SubnetId) -> Result<i64, Error> {
    tx.row(USED, params![id])?.map_or(Ok(0), |row| row.int("used"))
}

pub(crate) fn delete(tx: &mut Tx<'_>, id: SubnetId) -> Result<(), Error> {
    tx.execute(DELETE, params![id]).map(|_| ())
}
