//! Servers that are no more, kept for a while for those who ask what changed and what was used.

use kilonova_ids::ServerId;
use kilonova_store::{Tx, params};

use crate::Error;

kilonova_store::statements! {
    /// The row as it was; its state is that it is gone.
    KEEP = "INSERT INTO deleted_servers (seq, id, project_id, user_id, name, description, host,
        vm_state, task_state, power_state, vcpus, memory_mb, spec, metadata, tags, fault, created_at,
        updated_at, launched_at, locked_by, locked_reason, deleted_at)
        SELECT seq, id, project_id, user_id, name, description, host, 'deleted', NULL, 0, vcpus,
        memory_mb, spec, metadata, tags, fault, created_at, CAST(?2 AS BIGINT), launched_at,
        locked_by, locked_reason, CAST(?2 AS BIGINT) FROM servers WHERE id = ?1";
    /// When one went.
    SINCE = "SELECT deleted_at FROM deleted_servers WHERE id = ?1";
    /// Those that nobody will ask for.
    PURGE = "DELETE FROM deleted_servers WHERE seq IN (SELECT seq FROM deleted_servers
        WHERE deleted_at < ?1 ORDER BY deleted_at LIMIT ?2)";
}

/// Keeps a server's row, in the transaction that removes it.
///
/// # Errors
/// The database's; so for all functions here.
pub(super) fn keep(tx: &mut Tx<'_>, id: ServerId, now: i64) -> Result<(), Error> {
    tx.execute(KEEP, params![id, now])?;
    Ok(())
}

/// When a server went, if it was one of ours.
pub fn since(tx: &mut Tx<'_>, id: ServerId) -> Result<Option<i64>, Error> {
    Ok(tx.row(SINCE, params![id])?.map(|row| row.int(0)).transpose()?)
}

/// Forgets servers that went before `before`, `most` of them, and says how many.
pub fn purge(tx: &mut Tx<'_>, before: i64, most: i64) -> Result<u64, Error> {
    Ok(tx.execute(PURGE, params![before, most])?)
}
