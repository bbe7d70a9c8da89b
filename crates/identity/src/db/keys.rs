//! Rows of `identity_token_keys`: when each token key stopped signing. The keys themselves are sealed.

use jiff::Timestamp;
use kilonova_store::{Error, Tx, params, statements};

statements! {
    /// All keys.
    ALL = "SELECT number, retired_at FROM identity_token_keys ORDER BY number";
    /// Adds a key.
    ADD = "INSERT INTO identity_token_keys (number, retired_at) VALUES (?1, ?2)
        ON CONFLICT (number) DO NOTHING";
    /// Records that a key stops signing.
    RETIRE = "UPDATE identity_token_keys SET retired_at = ?2 WHERE number = ?1";
    /// Deletes a key.
    DELETE = "DELETE FROM identity_token_keys WHERE number = ?1";
}

/// The keys, with the time at which each stopped signing.
pub(crate) fn all(tx: &mut Tx<'_>) -> Result<Vec<(i64, Option<Timestamp>)>, Error> {
    tx.rows(ALL, params![])?
        .iter()
        .map(|row| Ok((row.int("number")?, row.time_opt("retired_at")?)))
        .collect()
}

/// Adds a key.
pub(crate) fn add(
    tx: &mut Tx<'_>,
    number: i64,
    retired_at: Option<Timestamp>,
) -> Result<(), Error> {
    tx.execute(ADD, params![number, retired_at]).map(|_| ())
}

/// Records that a key stops signing.
pub(crate) fn retire(tx: &mut Tx<'_>, number: i64, now: Timestamp) -> Result<(), Error> {
    tx.execute(RETIRE, params![number, now]).map(|_| ())
}

/// Deletes a key.
pub(crate) fn delete(tx: &mut Tx<'_>, number: i64) -> Result<(), Error> {
    tx.execute(DELETE, params![number]).map(|_| ())
}
