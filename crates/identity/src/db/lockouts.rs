//! Counts each user's failed logins since the last successful one, if `lockout_failure_attempts` is
//! set. The counts are in the database so that all controllers share them.

use jiff::Timestamp;
use kilonova_store::{Error, Tx, params, statements};

statements! {
    /// Counts a failure. An account whose lock expired (last failure before ?4) starts at one.
    FAILED = "INSERT INTO identity_login_failures (user_id, failures, last_at) VALUES (?1, 1, ?2)
        ON CONFLICT (user_id) DO UPDATE SET
          failures = CASE WHEN identity_login_failures.failures >= ?3
              AND identity_login_failures.last_at < ?4
            THEN 1 ELSE identity_login_failures.failures + 1 END,
          last_at = ?2";
    /// The count and the time of the last failure.
    OF_USER = "SELECT failures, last_at FROM identity_login_failures WHERE user_id = ?1";
    /// Resets the count.
    CLEAR = "DELETE FROM identity_login_failures WHERE user_id = ?1";
}

/// Counts a failure of an existing user.
pub(crate) fn record_failure(
    tx: &mut Tx<'_>,
    user: &str,
    now: Timestamp,
    attempts: i64,
    expired_before: Timestamp,
) -> Result<(), Error> {
    tx.execute(FAILED, params![user, now, attempts, expired_before]).map(|_| ())
}

/// The failures since the last successful login, and the time of the last one.
pub(crate) fn of_user(tx: &mut Tx<'_>, user: &str) -> Result<(i64, Timestamp), Error> {
    tx.row(OF_USER, params![user])?.map_or(Ok((0, Timestamp::UNIX_EPOCH)), |row| {
        Ok((row.int("failures")?, row.time("last_at")?))
    })
}

/// Resets the count of failures.
pub(crate) fn clear(tx: &mut Tx<'_>, user: &str) -> Result<(), Error> {
    tx.execute(CLEAR, params![user]).map(|_| ())
}
