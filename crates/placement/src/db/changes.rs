//! The change log: one row for every tree that a commit changed, so that replicas can tail it.
//!
//! On PostgreSQL numbers do not become visible in order: a later one may commit first. A row
//! therefore carries the id of the transaction that wrote it, and a reader goes from one horizon
//! (the oldest transaction still running) to the next: whatever lies between two horizons is
//! complete. SQLite has one writer, so there the row's own number does.

use kilonova_ids::ProviderId;
use kilonova_store::{Error, Row, Tx, params, statements};

statements! {
    /// A tree changed.
    APPEND = "INSERT INTO change_log (root_id, transaction_id, at) VALUES (?1, 0, ?2)
        RETURNING seq";
    /// Trees that changed after a row, with the last row of each.
    SINCE = "SELECT root_id, MAX(seq) FROM change_log WHERE seq > ?1 GROUP BY root_id";
    /// The last row.
    LAST = "SELECT COALESCE(MAX(seq), 0) FROM change_log";
    /// Forgets what every replica has seen.
    FORGET = "DELETE FROM change_log WHERE at < ?1";
}

/// Statements that only PostgreSQL has.
pub const POSTGRES_STATEMENTS: &[(&str, &str)] =
    &[("PG_APPEND", PG_APPEND), ("PG_SINCE", PG_SINCE), ("PG_HORIZON", PG_HORIZON)];
const PG_APPEND: &str = "INSERT INTO change_log (root_id, transaction_id, at)
    VALUES (?1, CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT), ?2) RETURNING seq";
const PG_SINCE: &str = "SELECT root_id, MAX(seq) FROM change_log
    WHERE transaction_id >= ?1 AND transaction_id < ?2 GROUP BY root_id";
const PG_HORIZON: &str =
    "SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS TEXT) AS BIGINT)";

/// Notes that a tree changed and returns the number of the note. Write a row of the tree first:
/// that orders the notes of one tree.
pub fn append(tx: &mut Tx<'_>, root: ProviderId, now: i64) -> Result<i64, Error> {
    let sql = if tx.is_postgres() { PG_APPEND } else { APPEND };
    number(tx.row(sql, params![root, now])?)
}

/// Up to where a reader of this moment has seen everything.
pub fn horizon(tx: &mut Tx<'_>) -> Result<i64, Error> {
    let sql = if tx.is_postgres() { PG_HORIZON } else { LAST };
    number(tx.row(sql, params![])?)
}

/// The trees that changed between two horizons, each with the number of its last note.
pub fn between(tx: &mut Tx<'_>, from: i64, to: i64) -> Result<Vec<(ProviderId, i64)>, Error> {
    let rows = if tx.is_postgres() {
        tx.rows(PG_SINCE, params![from, to])?
    } else {
        tx.rows(SINCE, params![from])?
    };
    rows.iter().map(|row| Ok((row.id(0)?, row.int(1)?))).collect()
}

/// Forgets notes older than a moment.
pub fn forget(tx: &mut Tx<'_>, before: i64) -> Result<(), Error> {
    tx.execute(FORGET, params![before])?;
    Ok(())
}

fn number(row: Option<Row>) -> Result<i64, Error> {
    row.ok_or_else(|| Error::Shape("the change log gave no number".into()))?.int(0)
}
