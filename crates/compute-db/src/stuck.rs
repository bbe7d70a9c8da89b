//! Operations that wait too long for a host.

use jiff::Timestamp;
use kilonova_ids::{HostName, ServerId};
use kilonova_store::{Tx, params};

use crate::Error;

kilonova_store::statements! {
    /// Removals of guests that have not advanced since a time, with the host whose document orders the removal.
    CLEARING = "SELECT d.host, d.server_id FROM operations o JOIN documents d ON d.server_id = o.subject
        WHERE o.outcome = 'open' AND o.step IN ('clear', 'destroy', 'drop_dest')
        AND d.body = '{\"state\":\"absent\"}' AND o.updated_at < ?1 LIMIT 200";
    /// Marks a removal as retried, unless it has advanced in the meantime.
    TOUCH = "UPDATE operations SET updated_at = ?3, version = version + 1
        WHERE open_subject = ?1 AND step IN ('clear', 'destroy', 'drop_dest') AND updated_at < ?2";
    /// Moves that have waited for their destination since before a time.
    AWAITED = "SELECT subject FROM operations WHERE outcome = 'open'
        AND step IN ('make_dest', 'receive', 'drop_dest') AND updated_at < ?1 LIMIT 200";
    /// Reverts that have waited for the report of their source since before a time.
    ASKED = "SELECT subject FROM operations WHERE outcome = 'open' AND step = 'ask_source'
        AND updated_at < ?1 LIMIT 200";
    /// Soft deletions that have waited for their host since before a time.
    SOFT_DELETING = "SELECT subject FROM operations WHERE outcome = 'open' AND kind = 'delete' AND step = 'soft'
        AND updated_at < ?1 LIMIT 200";
    /// Live migrations that have not advanced since a time and whose guest may be on either host.
    LEAVING = "SELECT subject FROM operations WHERE outcome = 'open' AND kind = 'live-migration'
        AND step IN ('transfer', 'abort', 'find') AND updated_at < ?1 LIMIT 200";
}

/// Servers whose removal from a host has not advanced since `before`, with that host.
///
/// # Errors
/// Store errors only.
pub fn clearing(tx: &mut Tx<'_>, before: Timestamp) -> Result<Vec<(HostName, ServerId)>, Error> {
    tx.rows(CLEARING, params![before])?
        .iter()
        .map(|row| Ok((row.host("host")?, row.id("server_id")?)))
        .collect()
}

/// Servers whose move has waited for its destination host since before `before`.
///
/// # Errors
/// Store errors only.
pub fn awaited(tx: &mut Tx<'_>, before: Timestamp) -> Result<Vec<ServerId>, Error> {
    let rows = tx.rows(AWAITED, params![before])?;
    Ok(rows.iter().map(|row| row.id("subject")).collect::<Result<_, kilonova_store::Error>>()?)
}

/// Servers whose revert has waited for the report of its source since before `before`.
///
/// # Errors
/// Store errors only.
pub fn asked(tx: &mut Tx<'_>, before: Timestamp) -> Result<Vec<ServerId>, Error> {
    let rows = tx.rows(ASKED, params![before])?;
    Ok(rows.iter().map(|row| row.id("subject")).collect::<Result<_, kilonova_store::Error>>()?)
}

/// Servers whose soft deletion has waited for its host since before `before`.
///
/// # Errors
/// Store errors only.
pub fn soft_deleting(tx: &mut Tx<'_>, before: Timestamp) -> Result<Vec<ServerId>, Error> {
    let rows = tx.rows(SOFT_DELETING, params![before])?;
    Ok(rows.iter().map(|row| row.id("subject")).collect::<Result<_, kilonova_store::Error>>()?)
}

/// Servers whose live migration has not advanced since `before` and whose guest may be on either host.
///
/// # Errors
/// Store errors only.
pub fn leaving(tx: &mut Tx<'_>, before: Timestamp) -> Result<Vec<ServerId>, Error> {
    let rows = tx.rows(LEAVING, params![before])?;
    Ok(rows.iter().map(|row| row.id("subject")).collect::<Result<_, kilonova_store::Error>>()?)
}

/// Marks a removal as retried; returns false if it has advanced since `before`.
///
/// # Errors
/// Store errors only.
pub fn touch(
    tx: &mut Tx<'_>,
    server: ServerId,
    before: Timestamp,
    now: Timestamp,
) -> Result<bool, Error> {
    Ok(tx.execute(TOUCH, params![server, before, now])? == 1)
}
