//! The tables `change_log` and `change_log_start`.
//!
//! On PostgreSQL numbers do not become visible in order: a higher one may commit first. A row
//! therefore also carries the id of its transaction. No further row can appear below the horizon,
//! which is the oldest running transaction. SQLite has one writer, so the row's own number serves
//! as its position.
//!
//! Controllers of earlier builds know only the columns of trees. They take every other entry for
//! one of a tree that does not exist.

use std::collections::HashSet;

use jiff::Timestamp;
use kilonova_store::{Asked, Error, Migration, Row, Store, Tx, params, statements};

use crate::Topic;

/// Schema of this crate. It precedes those of the services in new databases; in old ones
/// placement's first migration has made the tables.
pub const MIGRATIONS: &[Migration] = &[Migration { name: "changes-0001-topics", sql: TABLES }];

/// The tables of the change log. Positions in it are those of one database: a copy of it begins with an
/// empty log.
pub const LOG: &[&str] = &["change_log", "change_log_start"];

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS change_log (
    seq {serial},
    root_id TEXT NOT NULL,
    transaction_id BIGINT NOT NULL,
    at BIGINT NOT NULL
);
CREATE INDEX IF NOT EXISTS change_log_transaction ON change_log (transaction_id)
    WHERE transaction_id > 0;
CREATE TABLE IF NOT EXISTS change_log_start (position BIGINT NOT NULL);
INSERT INTO change_log_start (position)
    SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM change_log_start);
ALTER TABLE change_log ADD COLUMN topic TEXT NOT NULL DEFAULT 'tree';
ALTER TABLE change_log ADD COLUMN subject TEXT NOT NULL DEFAULT '';
ALTER TABLE change_log ADD COLUMN number BIGINT NOT NULL DEFAULT 0;
";

/// Maximum number of rows that one transaction deletes: SQLite's only writer must not be blocked
/// for long.
const CHUNK: i64 = 2000;

/// The columns of an [`Entry`].
macro_rules! columns {
    () => {
        "seq, topic, root_id, subject, number"
    };
}

/// The id of the transaction, on PostgreSQL.
macro_rules! this_transaction {
    () => {
        "CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT)"
    };
}

statements! {
    /// Records that a tree changed.
    APPEND = "INSERT INTO change_log (root_id, transaction_id, at) VALUES (?1, 0, ?2)
        RETURNING seq";
    /// Rows from a position on.
    SINCE = concat!("SELECT ", columns!(), ", seq AS position FROM change_log WHERE seq >= ?1
        ORDER BY seq LIMIT ?2");
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
pub const POSTGRES_STATEMENTS: &[(&str, &str)] = &[
    ("PG_APPEND_TREE", PG_APPEND_TREE),
    ("PG_APPEND", PG_APPEND),
    ("PG_SINCE", PG_SINCE),
    ("PG_BOUNDS", PG_BOUNDS),
];
const PG_APPEND_TREE: &str = concat!(
    "INSERT INTO change_log (root_id, transaction_id, at) VALUES (?1, ",
    this_transaction!(),
    ", ?2) RETURNING seq"
);
const PG_APPEND: &str = concat!(
    "INSERT INTO change_log (root_id, topic, subject, number, transaction_id, at)
    VALUES ('00000000-0000-0000-0000-000000000000', ?1, ?2, ?3, ",
    this_transaction!(),
    ", CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT))"
);
const PG_SINCE: &str = concat!(
    "SELECT ",
    columns!(),
    ", transaction_id AS position FROM change_log
    WHERE transaction_id >= ?1 AND transaction_id > 0 ORDER BY transaction_id LIMIT ?2"
);
const PG_BOUNDS: &str = "SELECT position AS start,
    CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS TEXT) AS BIGINT) AS horizon
    FROM change_log_start";

/// A row of the change log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number in the log.
    pub seq: i64,
    /// The kind of change.
    pub topic: Topic,
    /// The object that changed, as the topic defines it.
    pub subject: String,
    /// The number that the topic defines.
    pub number: i64,
}

/// An entry with its position relative to horizons.
pub(crate) struct Placed {
    pub position: i64,
    pub seq: i64,
    /// `None` for a topic of a newer controller.
    pub entry: Option<Entry>,
}

/// The bounds of the log in one snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The position up to which rows may have been deleted.
    pub start: i64,
    /// The position below which a reader of this transaction sees every row.
    pub horizon: i64,
}

/// Records that a tree changed, and returns the number of the row. The caller must have written a
/// row of the tree before: this orders the entries of one tree.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn append_tree(tx: &mut Tx<'_>, root: &str, now: Timestamp) -> Result<i64, Error> {
    let asked = ask_append_tree(tx, root, now)?;
    number(tx.answer_row(asked)?, "seq")
}

/// Asks for [`append_tree`]; [`number_of`] reads the answer.
pub fn ask_append_tree(tx: &mut Tx<'_>, root: &str, now: Timestamp) -> Result<Asked, Error> {
    let sql = if tx.is_postgres() { PG_APPEND_TREE } else { APPEND };
    tx.ask(sql, params![root, now])
}

/// The number of the row of [`ask_append_tree`].
pub fn number_of(rows: &[Row]) -> Option<i64> {
    rows.first().and_then(|row| row.int("seq").ok())
}

/// Appends an entry for the other controllers; costs no round trip. On SQLite there are none, and
/// nothing is written.
pub fn append(tx: &mut Tx<'_>, topic: Topic, subject: &str, about: i64) -> Result<(), Error> {
    if tx.is_postgres() {
        tx.defer(PG_APPEND, params![topic.as_str(), subject, about])?;
    }
    Ok(())
}

/// The number of the last row.
pub fn last(tx: &mut Tx<'_>) -> Result<i64, Error> {
    number(tx.row(LAST, params![])?, "seq")
}

/// The bounds of the log.
pub(crate) fn bounds(tx: &mut Tx<'_>) -> Result<Bounds, Error> {
    if tx.is_postgres() {
        let row = tx.row(PG_BOUNDS, params![])?.ok_or_else(no_number)?;
        return Ok(Bounds { start: row.int("start")?, horizon: row.int("horizon")? });
    }
    Ok(Bounds { start: number(tx.row(START, params![])?, "position")?, horizon: last(tx)? + 1 })
}

/// At most `most` rows from a position on.
pub(crate) fn since(tx: &mut Tx<'_>, from: i64, most: i64) -> Result<Vec<Placed>, Error> {
    let sql = if tx.is_postgres() { PG_SINCE } else { SINCE };
    tx.rows(sql, params![from, most])?.iter().map(read).collect()
}

fn read(row: &Row) -> Result<Placed, Error> {
    let seq = row.int("seq")?;
    let entry = match Topic::parse(row.text("topic")?) {
        None => None,
        Some(topic) => {
            let column = if topic == Topic::Tree { "root_id" } else { "subject" };
            Some(Entry { seq, topic, subject: row.string(column)?, number: row.int("number")? })
        }
    };
    Ok(Placed { position: row.int("position")?, seq, entry })
}

/// Deletes some entries older than a time, and returns whether there may be more. A controller that
/// has not polled since then reloads everything.
pub async fn prune(store: &Store, before: Timestamp) -> Result<bool, Error> {
    store.write(move |tx| delete_old(tx, before)).await
}

fn delete_old(tx: &mut Tx<'_>, before: Timestamp) -> Result<bool, Error> {
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

/// The numbers of rows at or above a horizon: they are visible, and lower ones may still appear.
pub(crate) fn above(rows: &[Placed], horizon: i64) -> HashSet<i64> {
    rows.iter().filter(|row| row.position >= horizon).map(|row| row.seq).collect()
}

fn number(row: Option<Row>, column: &str) -> Result<i64, Error> {
    row.ok_or_else(no_number)?.int(column)
}

fn no_number() -> Error {
    Error::Shape("the change log gave no number".into())
}
