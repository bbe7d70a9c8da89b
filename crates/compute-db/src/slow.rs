//! Servers whose build or soft reboot takes too long.

use jiff::Timestamp;
use kilonova_ids::ServerId;
use kilonova_store::{Tx, params};

use crate::Error;

kilonova_store::statements! {
    /// Servers whose build began before a time.
    BUILDS = "SELECT o.subject FROM operations o JOIN servers s ON s.id = o.subject
        WHERE o.outcome = 'open' AND o.kind = 'create' AND s.created_at < ?1
        ORDER BY s.created_at LIMIT 200";
    /// Servers whose guest was started by an earlier version and has waited for its ports since before a time.
    PLUGS = "SELECT o.subject FROM operations o WHERE o.outcome = 'open' AND o.kind = 'create'
        AND o.step = 'plug' AND o.updated_at < ?1 ORDER BY o.updated_at LIMIT 200";
    /// Servers that wait for moves that make room for them.
    WAITS = "SELECT o.subject FROM operations o WHERE o.outcome = 'open' AND o.kind = 'create'
        AND o.step = 'wait_for_room' ORDER BY o.updated_at LIMIT 200";
    /// Servers without a guest that have waited since before a time for other services to release resources.
    RELEASES = "SELECT o.subject FROM operations o WHERE o.outcome = 'open' AND o.kind = 'delete'
        AND o.step = 'release' AND o.updated_at < ?1 ORDER BY o.updated_at LIMIT 200";
    /// Servers whose soft reboot began before a time.
    REBOOTS = "SELECT o.subject FROM operations o JOIN servers s ON s.id = o.subject
        WHERE o.outcome = 'open' AND o.kind = 'reboot' AND s.task_state = 'rebooting'
        AND o.created_at < ?1 ORDER BY o.created_at LIMIT 200";
}

/// Servers whose build began before `before`.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn builds(tx: &mut Tx<'_>, before: Timestamp) -> Result<Vec<ServerId>, Error> {
    tx.rows(BUILDS, params![before])?.iter().map(|row| Ok(row.id("subject")?)).collect()
}

/// Servers that have waited since before `before` for their ports to be plugged.
pub fn plugs(tx: &mut Tx<'_>, before: Timestamp) -> Result<Vec<ServerId>, Error> {
    tx.rows(PLUGS, params![before])?.iter().map(|row| Ok(row.id("subject")?)).collect()
}

/// Servers that wait for moves that make room for them, the oldest first.
pub fn waits(tx: &mut Tx<'_>) -> Result<Vec<ServerId>, Error> {
    tx.rows(WAITS, params![])?.iter().map(|row| Ok(row.id("subject")?)).collect()
}

/// Deleted servers that have waited since before `before` for other services.
pub fn releases(tx: &mut Tx<'_>, before: Timestamp) -> Result<Vec<ServerId>, Error> {
    tx.rows(RELEASES, params![before])?.iter().map(|row| Ok(row.id("subject")?)).collect()
}

/// Servers whose soft reboot began before `before`.
pub fn reboots(tx: &mut Tx<'_>, before: Timestamp) -> Result<Vec<ServerId>, Error> {
    tx.rows(REBOOTS, params![before])?.iter().map(|row| Ok(row.id("subject")?)).collect()
}
