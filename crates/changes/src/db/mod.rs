//! The tables `change_log` and `change_log_start`.
//!
//! On PostgreSQL, row numbers do not become visible in order: a higher one may commit first. A row
//! therefore also carries the id of its transaction. A reader keeps its snapshot; its next read
//! returns the rows of transactions that had not ended in that snapshot. SQLite has one writer, so
//! the row's own number serves as its position.
//!
//! A dump restored into another server contains transaction ids that do not exist there. Rows with
//! ids beyond those of this server are never read; the deletion of old rows removes them and resets
//! the start of the log.
//!
//! Controllers of earlier builds know only the columns of trees. They treat every other entry as
//! that of a tree that does not exist.

use jiff::Timestamp;
use kilonova_store::{Asked, Error, Migration, Row, Store, Tx, params, statements};

use crate::Topic;

/// Schema of this crate. In new databases it precedes the schemas of the services; in old databases
/// placement's first migration has created the tables.
pub const MIGRATIONS: &[Migration] = &[Migration { name: "changes-0001-topics", sql: TABLES }];

/// The tables of the change log. Its positions are valid in one database only, so a copy of the
/// database begins with an empty log.
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

/// The id that the next transaction gets at the earliest, in the snapshot.
macro_rules! next_transaction {
    () => {
        "CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS TEXT) AS BIGINT)"
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
    /// Records the position of a deletion, so that readers notice missing rows. A position beyond
    /// this server's transactions comes from another server.
    MOVE_START = "UPDATE change_log_start SET position =
        CASE WHEN position < ?1 OR position >= ?2 THEN ?1 ELSE position + 1 END";
}

/// Statements for PostgreSQL only.
pub const POSTGRES_STATEMENTS: &[(&str, &str)] = &[
    ("PG_APPEND_TREE", PG_APPEND_TREE),
    ("PG_APPEND", PG_APPEND),
    ("PG_SINCE", PG_SINCE),
    ("PG_OF", PG_OF),
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
    WHERE transaction_id >= ?1 AND transaction_id > 0 AND transaction_id < ",
    next_transaction!(),
    " ORDER BY transaction_id LIMIT ?2"
);
const PG_OF: &str = concat!(
    "SELECT ",
    columns!(),
    ", transaction_id AS position FROM change_log
    WHERE transaction_id = ANY(CAST(CAST(?1 AS TEXT) AS BIGINT[])) AND transaction_id > 0
    ORDER BY transaction_id LIMIT ?2"
);
/// A promoted standby and a restarted server have another start time; restored tables have another
/// id.
const PG_BOUNDS: &str = "SELECT position AS start,
    CAST(pg_current_snapshot() AS TEXT) AS snapshot,
    CAST(EXTRACT(EPOCH FROM pg_postmaster_start_time()) AS TEXT) || ' ' || CAST(tableoid AS TEXT)
        AS server
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

/// An entry with its position.
pub(crate) struct Placed {
    pub position: i64,
    pub seq: i64,
    /// `None` for a topic of a newer controller.
    pub entry: Option<Entry>,
}

/// The part of the log that a reader has seen: the snapshot of its last read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The position up to which rows may have been deleted.
    start: i64,
    /// The first position that it has not seen.
    next: i64,
    /// The positions below `next` that it has not seen: those of transactions that were running.
    running: Vec<i64>,
    /// Identifies the server and its tables; empty on SQLite, whose file only one program uses.
    server: String,
}

impl Seen {
    /// True if a reader who has seen `self` cannot continue from it: its transactions are not those
    /// of the present server.
    fn is_of_another_server(&self, now: &Self) -> bool {
        self.server != now.server || self.next > now.next
    }

    /// True if rows that a reader with `self` has not seen may have been deleted. The rows of a
    /// transaction that is still running have not been deleted.
    fn may_lack_rows(&self, now: &Self) -> bool {
        let was_deleted =
            |position: &i64| *position <= now.start && !now.running.contains(position);
        now.start != self.start && (now.start >= self.next || self.running.iter().any(was_deleted))
    }
}

/// Why a reader must read everything again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    /// Entries were deleted before it read them.
    Deleted,
    /// There are so many that reading everything is cheaper.
    TooMany,
    /// The server was restarted, another one took over, or the tables were restored: memory may be
    /// ahead of the database.
    Server,
}

impl Behind {
    /// The reason, for a log line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => {
                "entries of the change log were deleted before this controller read them"
            }
            Self::TooMany => "the change log has too many new entries",
            Self::Server => {
                "the database was restarted, another server took over, or a backup was restored"
            }
        }
    }
}

/// The result of reading the log.
pub(crate) enum ReadResult {
    /// The reader must read everything again.
    Behind(Behind),
    /// The rows that the reader had not seen, in the order of their positions, and the part that it
    /// has now seen.
    Rows(Seen, Vec<Placed>),
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

/// Appends an entry for the other controllers; costs no round trip. SQLite has no other controllers,
/// so nothing is written.
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

/// The present end of the log. A reader that loads everything after this call has seen all entries
/// before it.
pub(crate) fn end(tx: &mut Tx<'_>) -> Result<Seen, Error> {
    if !tx.is_postgres() {
        let start = number(tx.row(START, params![])?, "position")?;
        return Ok(Seen { start, next: last(tx)? + 1, ..Seen::default() });
    }
    seen(tx.row(PG_BOUNDS, params![])?)
}

/// The rows that a reader has not seen, if there are not more than `most`; one round trip.
pub(crate) fn news(tx: &mut Tx<'_>, before: &Seen, most: i64) -> Result<ReadResult, Error> {
    let (now, mut rows) = if tx.is_postgres() {
        let bounds = tx.ask(PG_BOUNDS, params![])?;
        let since = tx.ask(PG_SINCE, params![before.next, most + 1])?;
        let running = if before.running.is_empty() {
            None
        } else {
            let list: Vec<String> = before.running.iter().map(i64::to_string).collect();
            Some(tx.ask(PG_OF, params![format!("{{{}}}", list.join(",")), most + 1])?)
        };
        let now = seen(tx.answer_row(bounds)?)?;
        let mut rows = Vec::new();
        if let Some(asked) = running {
            rows = tx.answer(asked)?;
        }
        rows.extend(tx.answer(since)?);
        (now, rows)
    } else {
        (end(tx)?, tx.rows(SINCE, params![before.next, most + 1])?)
    };
    if before.is_of_another_server(&now) {
        return Ok(ReadResult::Behind(Behind::Server));
    }
    if before.may_lack_rows(&now) {
        return Ok(ReadResult::Behind(Behind::Deleted));
    }
    if rows.len() as i64 > most {
        return Ok(ReadResult::Behind(Behind::TooMany));
    }
    let mut placed = rows.drain(..).map(|row| read(&row)).collect::<Result<Vec<_>, _>>()?;
    placed.sort_by_key(|row| (row.position, row.seq));
    Ok(ReadResult::Rows(now, placed))
}

/// The part of the log that a reader has seen now, on PostgreSQL.
fn seen(row: Option<Row>) -> Result<Seen, Error> {
    let row = row.ok_or_else(no_number)?;
    let (next, running) = snapshot(row.text("snapshot")?)?;
    Ok(Seen { start: row.int("start")?, next, running, server: row.string("server")? })
}

/// The next transaction of a snapshot and those that run in it: `xmin:xmax:xip,xip`.
fn snapshot(text: &str) -> Result<(i64, Vec<i64>), Error> {
    let shape = || Error::Shape(format!("PostgreSQL returned the invalid snapshot {text:?}"));
    let mut parts = text.split(':').skip(1);
    let next = parts.next().and_then(|next| next.parse().ok()).ok_or_else(shape)?;
    let running = parts.next().ok_or_else(shape)?.split(',').filter(|id| !id.is_empty());
    let running = running.map(|id| id.parse().map_err(|_| shape())).collect::<Result<_, _>>()?;
    Ok((next, running))
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

/// Deletes a batch of entries older than a time, and returns whether there may be more. A
/// controller that has not polled since then reloads everything.
pub async fn prune(store: &Store, before: Timestamp) -> Result<bool, Error> {
    store.write(move |tx| delete_old(tx, before)).await
}

fn delete_old(tx: &mut Tx<'_>, before: Timestamp) -> Result<bool, Error> {
    let old = tx.rows(OLD, params![before, CHUNK])?;
    if old.is_empty() {
        return Ok(false);
    }
    let unreached = if tx.is_postgres() { end(tx)?.next } else { i64::MAX };
    let (mut number, mut position) = (0, 0);
    for row in &old {
        number = row.int("seq")?.max(number);
        let of = row.int("transaction_id")?;
        if of < unreached {
            position = of.max(position);
        }
    }
    if !tx.is_postgres() {
        position = number;
    }
    tx.execute(MOVE_START, params![position, unreached])?;
    tx.execute(DELETE_OLD, params![number, before])?;
    Ok(old.len() as i64 == CHUNK)
}

fn number(row: Option<Row>, column: &str) -> Result<i64, Error> {
    row.ok_or_else(no_number)?.int(column)
}

fn no_number() -> Error {
    Error::Shape("the insert into the change log returned no number".into())
}

#[cfg(test)]
mod tests {
    use super::{Seen, snapshot};

    #[test]
    fn a_snapshot_is_read() {
        assert_eq!(snapshot("10:20:10,14,15").expect("it is valid"), (20, vec![10, 14, 15]));
        assert_eq!(snapshot("20:20:").expect("it is valid"), (20, vec![]));
        for broken in ["", "10", "10:20", "10:x:", "10:20:a"] {
            snapshot(broken).expect_err(broken);
        }
    }

    fn seen(start: i64, next: i64, running: &[i64]) -> Seen {
        Seen { start, next, running: running.to_vec(), server: String::new() }
    }

    #[test]
    fn a_reader_knows_whether_it_missed_a_deleted_row() {
        let before = seen(5, 20, &[8, 15]);
        assert!(!before.may_lack_rows(&seen(5, 30, &[])), "nothing was deleted since");
        assert!(!before.may_lack_rows(&seen(7, 30, &[])), "all deleted rows had been seen");
        assert!(before.may_lack_rows(&seen(20, 30, &[])));
        assert!(before.may_lack_rows(&seen(10, 30, &[])), "8 ended, and its rows are deleted");
        assert!(!before.may_lack_rows(&seen(10, 30, &[8])), "8 still runs");
    }

    #[test]
    fn transactions_that_were_never_there_are_those_of_another_server() {
        assert!(seen(0, 20, &[]).is_of_another_server(&seen(0, 19, &[])));
        assert!(!seen(0, 20, &[]).is_of_another_server(&seen(0, 20, &[])));
        let other = Seen { server: "other".into(), ..seen(0, 30, &[]) };
        assert!(seen(0, 20, &[]).is_of_another_server(&other));
    }
}
