//! The guests that a machine may still have although its host's service was deleted: it was down, and has not removed
//! them. If its agent returns, under any name, it must remove them before its devices are offered. Another machine that
//! takes the host's name has none of them.

use kilonova_ids::{HostName, ServerId};
use kilonova_store::{Migration, Tx, params};

use crate::Error;

/// The table. `machine_id` is empty if the host's agent did not report one.
pub const LEFT_GUESTS: Migration = Migration {
    name: "compute-0900-left-guests",
    sql: "
CREATE TABLE left_guests (
    host TEXT NOT NULL,
    machine_id TEXT NOT NULL,
    server_id TEXT NOT NULL,
    PRIMARY KEY (host, machine_id, server_id)
);
CREATE INDEX left_guests_machine ON left_guests (machine_id);
",
};

/// The machine that last registered host `?1`, and the empty id.
macro_rules! machine {
    () => {
        "(SELECT machine_id FROM machines WHERE host = ?1 UNION ALL SELECT '')"
    };
}

kilonova_store::statements! {
    /// Records a guest of the machine that last registered a host.
    INSERT = "INSERT INTO left_guests (host, machine_id, server_id)
        VALUES (?1, COALESCE((SELECT machine_id FROM machines WHERE host = ?1), ''), ?2) ON CONFLICT DO NOTHING";
    /// The guests of a machine under any name, and those of a host whose machine is not known.
    OF = "SELECT host, machine_id, server_id FROM left_guests WHERE machine_id = ?2 AND ?2 <> ''
        UNION SELECT host, machine_id, server_id FROM left_guests WHERE host = ?1 AND (machine_id = ''
          OR (?2 = '' AND machine_id IN (SELECT machine_id FROM machines WHERE host = ?1)))
        ORDER BY host, machine_id, server_id";
    /// One guest of a host's machine.
    ONE = concat!("SELECT 1 FROM left_guests WHERE host = ?1 AND server_id = ?2 AND machine_id IN ", machine!());
    /// Deletes the record of a guest of a host's machine.
    DELETE = concat!("DELETE FROM left_guests WHERE host = ?1 AND server_id = ?2 AND machine_id IN ", machine!());
    /// Deletes one record.
    REMOVE = "DELETE FROM left_guests WHERE host = ?1 AND machine_id = ?2 AND server_id = ?3";
}

/// A guest that a registering machine may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftGuest {
    /// The name of the machine's host when its service was deleted.
    pub host: HostName,
    /// The machine; empty if the host's agent did not report one.
    pub machine_id: String,
    /// The server.
    pub server: ServerId,
}

/// Records that the machine of a host may have the guest.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn leave(tx: &mut Tx<'_>, host: &HostName, server: ServerId) -> Result<(), Error> {
    tx.defer(INSERT, params![host, server])?;
    Ok(())
}

/// Announces [`of`].
pub fn expect_of(tx: &mut Tx<'_>, host: &HostName, machine_id: &str) -> Result<(), Error> {
    Ok(tx.expect(OF, params![host, machine_id])?)
}

/// The guests that a registering machine may have. `machine_id` is empty if the agent does not report one.
pub fn of(tx: &mut Tx<'_>, host: &HostName, machine_id: &str) -> Result<Vec<LeftGuest>, Error> {
    let rows = tx.rows(OF, params![host, machine_id])?;
    let read = |row: &kilonova_store::Row| {
        Ok(LeftGuest {
            host: row.host("host")?,
            machine_id: row.string("machine_id")?,
            server: row.id("server_id")?,
        })
    };
    Ok(rows.iter().map(read).collect::<Result<_, kilonova_store::Error>>()?)
}

/// Deletes one record.
pub fn remove(tx: &mut Tx<'_>, guest: &LeftGuest) -> Result<(), Error> {
    tx.defer(REMOVE, params![&guest.host, guest.machine_id.as_str(), guest.server])?;
    Ok(())
}

/// Announces [`has`].
pub fn expect(tx: &mut Tx<'_>, host: &HostName, server: ServerId) -> Result<(), Error> {
    Ok(tx.expect(ONE, params![host, server])?)
}

/// True if the machine of a host may have this guest.
pub fn has(tx: &mut Tx<'_>, host: &HostName, server: ServerId) -> Result<bool, Error> {
    Ok(tx.row(ONE, params![host, server])?.is_some())
}

/// Deletes the record of a guest that the machine of a host no longer has.
pub fn forget(tx: &mut Tx<'_>, host: &HostName, server: ServerId) -> Result<(), Error> {
    tx.defer(DELETE, params![host, server])?;
    Ok(())
}
