//! Failed logins of each user since the last good one, where `lockout_failure_attempts` is set.
//! They are in the database so that every controller counts the same.

use kilonova_store::{Error, Tx, params, statements};

statements! {
    /// One more failure. An account whose lock is over (its last failure is before ?4) starts anew.
    FAILED = "INSERT INTO identity_login_failures (user_id, failures, last_at) VALUES (?1, 1, ?2)
        ON CONFLICT (user_id) DO UPDATE SET
          failures = CASE WHEN identity_login_failures.failures >= ?3
              AND identity_login_failures.last_at < ?4
            THEN 1 ELSE identity_login_failures.failures + 1 END,
          last_at = ?2";
    /// How many, and when the last was.
    OF_USER = "SELECT failures, last_at FROM identity_login_failures WHERE user_id = ?1";
    /// A good login.
    CLEAR = "DELETE FROM identity_login_failures WHERE user_id = ?1";
}

/// Notes a failure of a user who is there.
pub(crate) fn failed(
    tx: &mut Tx<'_>,
    user: &str,
    now: i64,
    most: i64,
    over_before: i64,
) -> Result<(), Error> {
    tx.execute(FAILED, params![user, now, most, over_before]).map(|_| ())
}

/// Failures since the last good login, and when the last one was.
pub(crate) fn of_user(tx: &mut Tx<'_>, user: &str) -> Result<(i64, i64), Error> {
    tx.row(OF_USER, params![user])?.map_or(Ok((0, 0)), |row| Ok((row.int(0)?, row.int(1)?)))
}

pub(crate) fn clear(tx: &mut Tx<'_>, user: &str) -> Result<(), Error> {
    tx.execute(CLEAR, params![user]).map(|_| ())
}
