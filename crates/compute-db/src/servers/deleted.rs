//! Deleted servers, kept for a while for lists of changes and usage reports.

use jiff::Timestamp;
use kilonova_ids::ServerId;
use kilonova_store::{Tx, params};

use crate::Error;

kilonova_store::statements! {
    /// Copies the row, with the state `deleted`.
    KEEP = "INSERT INTO deleted_servers (seq, id, project_id, user_id, name, description, host,
        vm_state, task_state, power_state, vcpus, memory_mb, spec, metadata, tags, fault, created_at,
        updated_at, launched_at, locked_by, locked_reason, machine_type, deleted_at)
        SELECT seq, id, project_id, user_id, name, description, host, 'deleted', NULL, 0, vcpus,
        memory_mb, spec, metadata, tags, fault, created_at, CAST(?2 AS BIGINT), launched_at,
        locked_by, locked_reason, machine_type, CAST(?2 AS BIGINT) FROM servers WHERE id = ?1";
    /// The deletion time of a server.
    SINCE = "SELECT deleted_at FROM deleted_servers WHERE id = ?1";
    /// Deletes expired rows.
    PURGE = "DELETE FROM deleted_servers WHERE seq IN (SELECT seq FROM deleted_servers
        WHERE deleted_at < ?1 ORDER BY deleted_at LIMIT ?2)";
}

/// Copies a server's row, in the transaction that deletes it.
///
/// # Errors
/// Store errors only; also for all functions below.
pub(super) fn keep(tx: &mut Tx<'_>, id: ServerId, now: Timestamp) -> Result<(), Error> {
    tx.defer(KEEP, params![id, now])?;
    Ok(())
}

/// The deletion time of a server, if it was ours.
pub fn since(tx: &mut Tx<'_>, id: ServerId) -> Result<Option<Timestamp>, Error> {
    Ok(tx.row(SINCE, params![id])?.map(|row| row.time("deleted_at")).transpose()?)
}

/// Deletes at most `most` rows of servers deleted before `before`, and returns their number.
pub fn purge(tx: &mut Tx<'_>, before: Timestamp, most: i64) -> Result<u64, Error> {
    Ok(tx.execute(PURGE, params![before, most])?)
}
