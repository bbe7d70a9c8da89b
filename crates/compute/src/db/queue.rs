//! Live migrations that wait for others from the same host.

use kilonova_ids::ServerId;
use kilonova_store::{Tx, params};

use crate::Error;

kilonova_store::statements! {
    /// How many guests are leaving a host.
    LEAVING = "SELECT COUNT(*) FROM moves m JOIN operations o ON o.open_subject = m.open_server
        WHERE m.source_host = ?1 AND m.open_server IS NOT NULL AND m.kind = 'live-migration' AND o.kind = 'live-migration'
        AND o.step IN ('receive', 'transfer', 'abort', 'find')";
    /// Those that wait for that, the first first.
    WAITING = "SELECT m.server_id FROM moves m JOIN operations o ON o.open_subject = m.open_server
        WHERE m.source_host = ?1 AND m.open_server IS NOT NULL AND o.step = 'queued' ORDER BY m.number LIMIT 10";
    /// Hosts for which some wait.
    HOSTS = "SELECT DISTINCT m.source_host FROM operations o
        JOIN moves m ON m.open_server = o.open_subject
        WHERE o.outcome = 'open' AND o.step = 'queued'";
}

/// How many guests are leaving a host.
///
/// # Errors
/// The database's; so for all functions here.
pub fn leaving(tx: &mut Tx<'_>, host: &str) -> Result<i64, Error> {
    Ok(tx.row(LEAVING, params![host])?.map_or(Ok(0), |row| row.int(0))?)
}

/// Servers that wait to leave a host, some of them, the first first.
pub fn waiting(tx: &mut Tx<'_>, host: &str) -> Result<Vec<ServerId>, Error> {
    tx.rows(WAITING, params![host])?.iter().map(|row| Ok(row.id(0)?)).collect()
}

/// Hosts that servers wait to leave.
pub fn hosts(tx: &mut Tx<'_>) -> Result<Vec<String>, Error> {
    tx.rows(HOSTS, params![])?.iter().map(|row| Ok(row.string(0)?)).collect()
}
