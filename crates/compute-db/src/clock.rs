//! The latest stored time, which shows how far the clock that wrote it had advanced.

use jiff::Timestamp;
use kilonova_store::{Tx, params};

use crate::Error;

kilonova_store::statements! {
    /// The latest time in hosts, operations and servers.
    NEWEST = "SELECT MAX(at) AS newest FROM (SELECT MAX(last_seen) AS at FROM hosts
        UNION ALL SELECT MAX(updated_at) FROM operations
        UNION ALL SELECT MAX(updated_at) FROM servers) newest";
    /// Limits the `last_seen` of hosts to a time.
    REDATE_HOSTS = "UPDATE hosts SET last_seen = ?1 WHERE last_seen > ?1";
    /// Limits the `updated_at` of servers to a time.
    REDATE_SERVERS = "UPDATE servers SET updated_at = ?1,
        created_at = CASE WHEN created_at > ?1 THEN ?1 ELSE created_at END,
        launched_at = CASE WHEN launched_at > ?1 THEN ?1 ELSE launched_at END
        WHERE updated_at > ?1";
}

/// The latest time in hosts, operations and servers; `None` if there are none.
///
/// # Errors
/// Store errors only.
pub fn newest(tx: &mut Tx<'_>) -> Result<Option<Timestamp>, Error> {
    let row = tx.row(NEWEST, params![])?;
    Ok(row.map(|row| row.time_opt("newest")).transpose()?.flatten())
}

/// Limits the `last_seen` of hosts to a time. Returns the number of hosts that were ahead.
///
/// # Errors
/// Store errors only.
pub fn redate_hosts(tx: &mut Tx<'_>, now: Timestamp) -> Result<u64, Error> {
    Ok(tx.execute(REDATE_HOSTS, params![now])?)
}

/// Limits the times of servers to `now`. Returns the number of servers that were ahead.
///
/// # Errors
/// Store errors only.
pub fn redate_servers(tx: &mut Tx<'_>, now: Timestamp) -> Result<u64, Error> {
    Ok(tx.execute(REDATE_SERVERS, params![now])?)
}
