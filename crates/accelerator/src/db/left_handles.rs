//! Rows of `left_handles`: functions that a machine had to clean when its host was deleted.

use kilonova_ids::{AttachHandleId, HostName};
use kilonova_store::{Error, Row, Tx, params, statements};

statements! {
    /// Copies the parked handles of a host.
    LEAVE = "INSERT INTO left_handles (host, machine_id, address)
        SELECT DISTINCT d.host, CAST(?2 AS TEXT), h.address FROM attach_handles h
        JOIN deployables p ON p.id = h.deployable_id JOIN devices d ON d.id = p.device_id
        WHERE d.host = ?1 AND h.parked IS NOT NULL AND h.dirty_of IS NULL
        ON CONFLICT (host, machine_id, address) DO NOTHING";
    /// Ends the open orders to clean handles of a host.
    END_ORDERS = "UPDATE device_orders SET state = 'failed', open_key = NULL, updated_at = ?2,
        message = 'the service of the host was deleted'
        WHERE host = ?1 AND state = 'open' AND task = 'clean'";
    /// Deletes the parked handles of a host.
    DELETE_PARKED = "DELETE FROM attach_handles WHERE parked IS NOT NULL AND dirty_of IS NULL
        AND deployable_id IN (SELECT p.id FROM deployables p JOIN devices d ON d.id = p.device_id
          WHERE d.host = ?1)";
    /// The functions of a machine under any name, and those of a host whatever its machine was.
    OF = "SELECT host, machine_id, address FROM left_handles WHERE machine_id = ?2 AND ?2 <> ''
        UNION SELECT host, machine_id, address FROM left_handles WHERE host = ?1
        ORDER BY host, machine_id, address";
    /// The handles of a function that a host reports.
    AT = "SELECT h.uuid, h.state FROM attach_handles h JOIN deployables p ON p.id = h.deployable_id
        JOIN devices d ON d.id = p.device_id WHERE d.host = ?1 AND h.address = ?2 AND h.present = 1
        ORDER BY h.id";
    /// Parks a free handle.
    PARK = "UPDATE attach_handles SET state = 'dirty', parked = 'to be cleaned', updated_at = ?2
        WHERE uuid = ?1 AND state = 'free' RETURNING uuid";
    /// Deletes a row.
    REMOVE = "DELETE FROM left_handles WHERE host = ?1 AND machine_id = ?2 AND address = ?3";
    /// Adds a row.
    INSERT = "INSERT INTO left_handles (host, machine_id, address) VALUES (?1, ?2, ?3)
        ON CONFLICT (host, machine_id, address) DO NOTHING";
}

/// A function that a machine had to clean when its host was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeftHandle {
    /// The name of the host; empty once another machine with that name has cleaned the function.
    pub host: String,
    /// The machine; empty if the host's agent did not report one.
    pub machine_id: String,
    /// Address of the function.
    pub address: String,
}

/// Replaces the parked handles of a host, and the orders to clean them, by rows of its machine.
pub(crate) fn leave(
    tx: &mut Tx<'_>,
    host: &HostName,
    machine_id: &str,
    now: jiff::Timestamp,
) -> Result<(), Error> {
    tx.defer(LEAVE, params![host, machine_id])?;
    tx.defer(END_ORDERS, params![host, now])?;
    tx.defer(DELETE_PARKED, params![host])
}

/// Announces [`of`].
pub(crate) fn expect_of(tx: &mut Tx<'_>, host: &HostName, machine_id: &str) -> Result<(), Error> {
    tx.expect(OF, params![host, machine_id])
}

/// The functions that a registering machine has to clean.
pub(crate) fn of(
    tx: &mut Tx<'_>,
    host: &HostName,
    machine_id: &str,
) -> Result<Vec<LeftHandle>, Error> {
    let read = |row: &Row| {
        Ok(LeftHandle {
            host: row.string("host")?,
            machine_id: row.string("machine_id")?,
            address: row.string("address")?,
        })
    };
    tx.rows(OF, params![host, machine_id])?.iter().map(read).collect()
}

/// Parks the free handles of a function, and returns them. `None` if the host does not report the function.
pub(crate) fn park(
    tx: &mut Tx<'_>,
    host: &HostName,
    address: &str,
    now: jiff::Timestamp,
) -> Result<Option<Vec<AttachHandleId>>, Error> {
    let rows = tx.rows(AT, params![host, address])?;
    if rows.is_empty() {
        return Ok(None);
    }
    let mut parked = Vec::new();
    for row in &rows {
        let handle: AttachHandleId = row.id("uuid")?;
        if tx.row(PARK, params![handle, now])?.is_some() {
            parked.push(handle);
        }
    }
    Ok(Some(parked))
}

/// Deletes a row.
pub(crate) fn remove(tx: &mut Tx<'_>, left: &LeftHandle) -> Result<(), Error> {
    let LeftHandle { host, machine_id, address } = left;
    tx.defer(REMOVE, params![host.as_str(), machine_id.as_str(), address.as_str()])
}

/// Keeps a row for its machine alone: another machine with the host's name has taken it over.
pub(crate) fn keep_for_machine(tx: &mut Tx<'_>, left: &LeftHandle) -> Result<(), Error> {
    remove(tx, left)?;
    tx.defer(INSERT, params!["", left.machine_id.as_str(), left.address.as_str()])
}
