//! Rows of `enroll_tokens`: join tokens by hash.

use jiff::Timestamp;
use kilonova_ids::HostName;
use kilonova_store::{Error, Tx, params, statements};

statements! {
    /// One token by its hash.
    READ = "SELECT host, expires_at, used_at, used_by, replaces FROM enroll_tokens
        WHERE hash = ?1";
    /// Adds a token.
    ADD = "INSERT INTO enroll_tokens (hash, host, made_at, expires_at, replaces)
        VALUES (?1, ?2, ?3, ?4, ?5)";
    /// Marks a token as used.
    USE = "UPDATE enroll_tokens SET used_at = ?2, used_by = ?3 WHERE hash = ?1 AND used_at IS NULL";
    /// The usable tokens.
    USABLE = "SELECT host, expires_at FROM enroll_tokens
        WHERE used_at IS NULL AND expires_at > ?1 ORDER BY expires_at, hash";
    /// Deletes the unused tokens for a host.
    DELETE_UNUSED = "DELETE FROM enroll_tokens WHERE host = ?1 AND used_at IS NULL";
    /// Deletes the unused tokens that name no host.
    DELETE_UNUSED_OF_ANY = "DELETE FROM enroll_tokens WHERE host IS NULL AND used_at IS NULL";
    /// Deletes the tokens that expired before a time.
    DELETE_EXPIRED = "DELETE FROM enroll_tokens WHERE expires_at < ?1";
}

/// A stored token.
pub(crate) struct StoredToken {
    /// The only host that may use it.
    pub host: Option<HostName>,
    pub expires_at: Timestamp,
    pub used_at: Option<Timestamp>,
    pub used_by: Option<String>,
    /// True if its host may take the name of a host that never had a certificate.
    pub replaces: bool,
}

/// One token by its hash.
pub(crate) fn read(tx: &mut Tx<'_>, hash: &str) -> Result<Option<StoredToken>, Error> {
    let row = tx.row(READ, params![hash])?;
    let stored = |row: kilonova_store::Row| {
        Ok(StoredToken {
            host: row.host_opt("host")?,
            expires_at: row.time("expires_at")?,
            used_at: row.time_opt("used_at")?,
            used_by: row.string_opt("used_by")?,
            replaces: row.bool("replaces")?,
        })
    };
    row.map(stored).transpose()
}

/// Adds a token.
pub(crate) fn add(
    tx: &mut Tx<'_>,
    hash: &str,
    host: Option<&HostName>,
    now: Timestamp,
    expires_at: Timestamp,
    replaces: bool,
) -> Result<(), Error> {
    tx.execute(ADD, params![hash, host, now, expires_at, replaces]).map(|_| ())
}

/// Marks a token as used. Returns whether it was usable.
pub(crate) fn use_up(
    tx: &mut Tx<'_>,
    hash: &str,
    now: Timestamp,
    host: &HostName,
) -> Result<bool, Error> {
    tx.execute(USE, params![hash, now, host]).map(|rows| rows == 1)
}

/// Host and expiry of each usable token.
pub(crate) fn usable(
    tx: &mut Tx<'_>,
    now: Timestamp,
) -> Result<Vec<(Option<HostName>, Timestamp)>, Error> {
    let rows = tx.rows(USABLE, params![now])?;
    rows.iter().map(|row| Ok((row.host_opt("host")?, row.time("expires_at")?))).collect()
}

/// Deletes the unused tokens for a host, or those that name no host. Returns how many were usable.
pub(crate) fn delete_unused(
    tx: &mut Tx<'_>,
    host: Option<&HostName>,
    now: Timestamp,
) -> Result<usize, Error> {
    let usable = usable(tx, now)?.iter().filter(|(of, _)| of.as_ref() == host).count();
    match host {
        Some(host) => tx.execute(DELETE_UNUSED, params![host])?,
        None => tx.execute(DELETE_UNUSED_OF_ANY, params![])?,
    };
    Ok(usable)
}

/// Deletes the tokens that expired before a time.
pub(crate) fn delete_expired(tx: &mut Tx<'_>, before: Timestamp) -> Result<(), Error> {
    tx.execute(DELETE_EXPIRED, params![before]).map(|_| ())
}
