//! The queue of live migrations of each source.

use kilonova_ids::{HostName, ServerId};
use kilonova_store::{Tx, params};

use crate::Error;

kilonova_store::statements! {
    /// The number of live migrations in progress from a host.
    LEAVING = "SELECT COUNT(*) AS count FROM moves m JOIN operations o ON o.open_subject = m.open_server
        WHERE m.source_host = ?1 AND m.open_server IS NOT NULL AND m.kind = 'live-migration' AND o.kind = 'live-migration'
        AND o.step IN ('receive', 'transfer', 'abort', 'find')";
    /// Queued live migrations of a host, the oldest first.
    WAITING = "SELECT m.server_id FROM moves m JOIN operations o ON o.open_subject = m.open_server
        WHERE m.source_host = ?1 AND m.open_server IS NOT NULL AND o.step = 'queued' ORDER BY m.number LIMIT 10";
    /// Hosts with queued live migrations.
    HOSTS = "SELECT DISTINCT m.source_host FROM operations o
        JOIN moves m ON m.open_server = o.open_subject
        WHERE o.outcome = 'open' AND o.step = 'queued'";
}

/// The number of live migrations in progress from a host.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn leaving(tx: &mut Tx<'_>, host: &HostName) -> Result<i64, Error> {
    Ok(tx.row(LEAVING, params![host])?.map_or(Ok(0), |row| row.int("count"))?)
}

/// At most ten servers whose live migration from a host is queued, oldest first.
pub fn waiting(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<ServerId>, Error> {
    tx.rows(WAITING, params![host])?.iter().map(|row| Ok(row.id("server_id")?)).collect()
}

/// Hosts with queued live migrations.
pub fn hosts(tx: &mut Tx<'_>) -> Result<Vec<HostName>, Error> {
    tx.rows(HOSTS, params![])?.iter().map(|row| Ok(row.host("source_host")?)).collect()
}
