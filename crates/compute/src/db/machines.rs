//! Which machine spoke for which host last. A host keeps its name over machines, and a machine its id
//! over names; the two together tell a renamed host from a new one, and a second machine of the same
//! name from the first.

use kilonova_store::{Migration, Tx, params};

use crate::Error;

/// Its table.
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
    /// It is this one now.
    PUT = "INSERT INTO machines (host, machine_id, since) VALUES (?1, ?2, ?3)
        ON CONFLICT (host) DO UPDATE SET machine_id = excluded.machine_id, since = excluded.since";
    /// The other hosts that the machine was.
    OTHERS = "SELECT m.host FROM machines m JOIN hosts h ON h.host = m.host
        WHERE m.machine_id = ?1 AND m.host <> ?2 ORDER BY h.last_seen DESC";
    /// Machines with several names, the newest name first.
    RENAMED = "SELECT m.machine_id, m.host FROM machines m JOIN hosts h ON h.host = m.host
        WHERE (SELECT COUNT(*) FROM machines o JOIN hosts i ON i.host = o.host
          WHERE o.machine_id = m.machine_id) > 1 ORDER BY m.machine_id, h.last_seen DESC, m.host";
}

/// The machine that spoke for a host last.
///
/// # Errors
/// The database's; so for all functions here.
pub fn of_host(tx: &mut Tx<'_>, host: &str) -> Result<Option<String>, Error> {
    Ok(tx.row(OF_HOST, params![host])?.map(|row| row.string(0)).transpose()?)
}

/// Writes down which machine speaks for a host.
pub fn put(tx: &mut Tx<'_>, host: &str, machine_id: &str, now: i64) -> Result<(), Error> {
    tx.execute(PUT, params![host, machine_id, now])?;
    Ok(())
}

/// The other hosts that the machine was, the one heard of last first.
pub fn others(tx: &mut Tx<'_>, machine_id: &str, host: &str) -> Result<Vec<String>, Error> {
    let rows = tx.rows(OTHERS, params![machine_id, host])?;
    Ok(rows.iter().map(|row| row.string(0)).collect::<Result<_, _>>()?)
}

/// The hosts of each machine with several names: machine, host, the newest name first.
pub fn renamed(tx: &mut Tx<'_>) -> Result<Vec<(String, String)>, Error> {
    let rows = tx.rows(RENAMED, params![])?;
    Ok(rows
        .iter()
        .map(|row| Ok((row.string(0)?, row.string(1)?)))
        .collect::<Result<_, kilonova_store::Error>>()?)
}
