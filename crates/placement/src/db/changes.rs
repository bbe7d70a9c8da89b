//! The change log: one row for every tree that a commit changed, so that replicas can tail it.
//!
//! On PostgreSQL numbers do not become visible in order: a higher one may commit first. A row
//! therefore also carries the id of its transaction. No further row can appear below the horizon,
//! which is the oldest running transaction. SQLite has one writer, so the row's own number serves
//! as its position.

use jiff::Timestamp;
use kilonova_ids::ProviderId;
use kilonova_store::{Error, Row, Tx, params, statements};

/// Maximum number of rows that one transaction deletes: SQLite's only writer must not be blocked
/// for long.
const CHUNK: i64 = 2000;

statements! {
    /// Records that a tree changed.
    APPEND = "INSERT INTO change_log (root_id, transaction_id, at) VALUES (?1, 0, ?2)
        RETURNING seq";
    /// Rows from a position on.
    SINCE = "SELECT seq, root_id, seq AS position FROM change_log WHERE seq >= ?1";
    /// The last row.
    LAST = "SELECT COALESCE(MAX(seq), 0) AS seq FROM change_log";
    /// The position up to which rows may have been deleted.
    START = "SELECT position FROM change_log_start";
    /// Rows to delete: of the oldest rows, those before a time.
    OLD = "SELECT seq, transaction_id FROM (SELECT seq, transaction_id, at FROM change_log
        ORDER BY seq LIMIT ?2) first_ones WHERE at < ?1 ORDER BY seq";
    /// Deletes rows.
    DELETE_OLD = "DELETE FROM change_log WHERE seq <= ?1 AND at < ?2";
    /// Records the position of a deletion, so that readers notice that rows are missing.
    MOVE_START = "UPDATE change_log_start
        SET position = CASE WHEN position < ?1 THEN ?1 ELSE position + 1 END";
}

/// Statements for PostgreSQL only.
pub const POSTGRES_STATEMENTS: &[(&str, &str)] =
    &[("PG_APPEND", PG_APPEND), ("PG_SINCE", PG_SINCE), ("PG_HORIZON", PG_HORIZON)];
const PG_APPEND: &str = "INSERT INTO change_log (root_id, transaction_id, at)
    VALUES (?1, CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT), ?2) RETURNING seq";
const PG_SINCE: &str = "SELECT seq, root_id, transaction_id AS position FROM change_log
    WHERE transaction_id >= ?1 AND transaction_id > 0";
const PG_HORIZON: &str =
    "SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS TEXT) AS BIGINT) AS position";

/// A row of the change log.
#[derive(Debug, Clone, Copy)]
pub struct LogEntry {
    /// Its number.
    pub number: i64,
    /// The tree that changed.
    pub root: ProviderId,
    /// Its position relative to horizons.
    pub position: i64,
}

/// Records that a tree changed, and returns the number of the row. The caller must have written a
/// row of the tree before: this orders the entries of one tree.
pub fn append(tx: &mut Tx<'_>, root: ProviderId, now: Timestamp) -> Result<i64, Error> {
    let sql = if tx.is_postgres() { PG_APPEND } else { APPEND };
    number(tx.row(sql, params![root, now])?, "seq")
}

/// The number of the last row.
pub fn last(tx: &mut Tx<'_>) -> Result<i64, Error> {
    number(tx.row(LAST, params![])?, "seq")
}

/// The position below which a reader of this transaction sees every row.
pub fn horizon(tx: &mut Tx<'_>) -> Result<i64, Error> {
    if tx.is_postgres() {
        number(tx.row(PG_HORIZON, params![])?, "position")
    } else {
        Ok(last(tx)? + 1)
    }
}

/// The position up to which rows may have been deleted.
pub fn start(tx: &mut Tx<'_>) -> Result<i64, Error> {
    number(tx.row(START, params![])?, "position")
}

/// The rows from a position on.
pub fn since(tx: &mut Tx<'_>, from: i64) -> Result<Vec<LogEntry>, Error> {
    let sql = if tx.is_postgres() { PG_SINCE } else { SINCE };
    let rows = tx.rows(sql, params![from])?;
    let read = |row: &Row| {
        Ok(LogEntry {
            number: row.int("seq")?,
            root: row.id("root_id")?,
            position: row.int("position")?,
        })
    };
    rows.iter().map(read).collect()
}

/// Deletes some rows older than a time. Returns whether there may be more.
pub fn delete_old(tx: &mut Tx<'_>, before: Timestamp) -> Result<bool, Error> {
    let old = tx.rows(OLD, params![before, CHUNK])?;
    let (mut number, mut position) = (0, 0);
    for row in &old {
        number = row.int("seq")?.max(number);
        position = row.int("transaction_id")?.max(position);
    }
    if old.is_empty() {
        return Ok(false);
    }
    if !tx.is_postgres() {
        position = number;
    }
    tx.execute(MOVE_START, params![position])?;
    tx.execute(DELETE_OLD, params![number, before])?;
    Ok(old.len() as i64 == CHUNK)
}

fn number(row: Option<Row>, column: &str) -> Result<i64, Error> {
    row.ok_or_else(|| Error::Shape("the change log gave no number".into()))?.int(column)
}
