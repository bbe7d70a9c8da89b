//! The machine that last registered each host. A host keeps its name when the machine changes, and
//! a machine its id when its name changes. Together they distinguish a renamed host from a new one,
//! and a second machine with the same name from the first.

use jiff::Timestamp;
use kilonova_ids::HostName;
use kilonova_store::{Migration, Tx, params};

use crate::Error;

/// The table.
pub const MACHINES: Migration = Migration {
    name: "compute-0011-machines",
    sql: "
CREATE TABLE machines (
    host TEXT PRIMARY KEY,
    machine_id TEXT NOT NULL,
    since BIGINT NOT NULL
);
CREATE INDEX machines_id ON machines (machine_id);
",
};

kilonova_store::statements! {
    /// The machine of a host.
    OF_HOST = "SELECT machine_id FROM machines WHERE host = ?1";
    /// Sets the machine of a host.
    PUT = "INSERT INTO machines (host, machine_id, since) VALUES (?1, ?2, ?3)
        ON CONFLICT (host) DO UPDATE SET machine_id = excluded.machine_id, since = excluded.since";
    /// The other host names of a machine.
    OTHERS = "SELECT m.host FROM machines m JOIN hosts h ON h.host = m.host
        WHERE m.machine_id = ?1 AND m.host <> ?2 ORDER BY h.last_seen DESC";
    /// The names of a machine whose host was deleted, unless another machine has taken them.
    FORMER = "SELECT m.host FROM machines m WHERE m.machine_id = ?1 AND m.host <> ?2
        AND NOT EXISTS (SELECT 1 FROM hosts h WHERE h.host = m.host) ORDER BY m.host";
    /// Machines with several host names, newest name first.
    RENAMED = "SELECT m.machine_id, m.host FROM machines m JOIN hosts h ON h.host = m.host
        WHERE (SELECT COUNT(*) FROM machines o JOIN hosts i ON i.host = o.host
          WHERE o.machine_id = m.machine_id) > 1 ORDER BY m.machine_id, h.last_seen DESC, m.host";
}

/// Announces [`of_host`], [`others`] and [`former`].
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn expect(tx: &mut Tx<'_>, machine_id: &str, host: &HostName) -> Result<(), Error> {
    tx.expect(OF_HOST, params![host])?;
    tx.expect(OTHERS, params![machine_id, host])?;
    tx.expect(FORMER, params![machine_id, host])?;
    Ok(())
}

/// The machine that last registered a host.
pub fn of_host(tx: &mut Tx<'_>, host: &HostName) -> Result<Option<String>, Error> {
    Ok(tx.row(OF_HOST, params![host])?.map(|row| row.string("machine_id")).transpose()?)
}

/// Sets the machine of a host.
pub fn put(
    tx: &mut Tx<'_>,
    host: &HostName,
    machine_id: &str,
    now: Timestamp,
) -> Result<(), Error> {
    tx.defer(PUT, params![host, machine_id, now])?;
    Ok(())
}

/// The other host names of a machine, most recent first.
pub fn others(tx: &mut Tx<'_>, machine_id: &str, host: &HostName) -> Result<Vec<HostName>, Error> {
    let rows = tx.rows(OTHERS, params![machine_id, host])?;
    Ok(rows.iter().map(|row| row.host("host")).collect::<Result<_, _>>()?)
}

/// The other names of a machine whose host was deleted and that no other machine has taken.
pub fn former(tx: &mut Tx<'_>, machine_id: &str, host: &HostName) -> Result<Vec<HostName>, Error> {
    let rows = tx.rows(FORMER, params![machine_id, host])?;
    Ok(rows.iter().map(|row| row.host("host")).collect::<Result<_, _>>()?)
}

/// The host names of each machine with several: pairs of machine and host, newest name first.
pub fn renamed(tx: &mut Tx<'_>) -> Result<Vec<(String, HostName)>, Error> {
    let rows = tx.rows(RENAMED, params![])?;
    Ok(rows
        .iter()
        .map(|row| Ok((row.string("machine_id")?, row.host("host")?)))
        .collect::<Result<_, kilonova_store::Error>>()?)
}
