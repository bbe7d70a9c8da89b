//! Rows of `sealed_secrets`.

use jiff::Timestamp;
use kilonova_store::{Error, Row, Tx, params, statements};

use crate::Sealed;

statements! {
    /// The secrets of a kind.
    OF_KIND = "SELECT kind, number, sealed, made_at FROM sealed_secrets WHERE kind = ?1
        ORDER BY number";
    /// All secrets.
    ALL = "SELECT kind, number, sealed, made_at FROM sealed_secrets ORDER BY kind, number";
    /// Adds a secret.
    ADD = "INSERT INTO sealed_secrets (kind, number, sealed, made_at) VALUES (?1, ?2, ?3, ?4)";
    /// Replaces the sealed text of a secret.
    RESEAL = "UPDATE sealed_secrets SET sealed = ?3 WHERE kind = ?1 AND number = ?2";
    /// Deletes a secret.
    DELETE = "DELETE FROM sealed_secrets WHERE kind = ?1 AND number = ?2";
}

fn sealed(row: &Row) -> Result<Sealed, Error> {
    Ok(Sealed {
        kind: row.string("kind")?,
        number: row.int("number")?,
        text: row.string("sealed")?,
        made_at: row.time("made_at")?,
    })
}

/// The secrets of a kind, by number.
pub(crate) fn of_kind(tx: &mut Tx<'_>, kind: &str) -> Result<Vec<Sealed>, Error> {
    tx.rows(OF_KIND, params![kind])?.iter().map(sealed).collect()
}

/// All secrets.
pub(crate) fn all(tx: &mut Tx<'_>) -> Result<Vec<Sealed>, Error> {
    tx.rows(ALL, params![])?.iter().map(sealed).collect()
}

/// Adds a secret.
pub(crate) fn add(
    tx: &mut Tx<'_>,
    kind: &str,
    number: i64,
    text: &str,
    now: Timestamp,
) -> Result<(), Error> {
    tx.execute(ADD, params![kind, number, text, now]).map(|_| ())
}

/// Replaces the sealed text of a secret.
pub(crate) fn reseal(tx: &mut Tx<'_>, kind: &str, number: i64, text: &str) -> Result<(), Error> {
    tx.execute(RESEAL, params![kind, number, text]).map(|_| ())
}

/// Deletes a secret.
pub(crate) fn delete(tx: &mut Tx<'_>, kind: &str, number: i64) -> Result<(), Error> {
    tx.execute(DELETE, params![kind, number]).map(|_| ())
}
