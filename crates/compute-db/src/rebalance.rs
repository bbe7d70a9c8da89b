//! Records the live migrations that rebalancing has begun. They count towards the operator's limits, which apply to all
//! controllers together.

use jiff::SignedDuration;
use kilonova_ids::{ConsumerId, ServerId};
use kilonova_store::{Migration, Tx, params};
use kilonova_wire::time;

use crate::Error;

/// The period for which the moves per hour are counted.
const WINDOW: SignedDuration = SignedDuration::from_hours(1);

/// Adds the table of the moves, and a row that every transaction updates when it begins a move. This makes controllers
/// count one after the other.
pub const REBALANCE: Migration = Migration {
    name: "compute-0760-rebalance",
    sql: "
CREATE TABLE rebalance_moves (
    migration_id TEXT PRIMARY KEY,
    server_id TEXT NOT NULL,
    begun_at BIGINT NOT NULL
);
CREATE INDEX rebalance_moves_begun ON rebalance_moves (begun_at);
CREATE TABLE rebalance_lock (revision BIGINT NOT NULL PRIMARY KEY);
INSERT INTO rebalance_lock (revision) VALUES (0);",
};

kilonova_store::statements! {
    /// Makes transactions that begin moves conflict, so that each counts the others' moves.
    LOCK = "UPDATE rebalance_lock SET revision = revision + 1";
    /// The number of moves since a time, and the number of those that are in progress.
    SINCE = "SELECT COUNT(*) AS begun, COUNT(m.open_server) AS open FROM rebalance_moves r
        LEFT JOIN moves m ON m.id = r.migration_id WHERE r.begun_at > ?1";
    /// The number of moves that began before a time and are in progress.
    OPEN_BEFORE = "SELECT COUNT(*) AS open FROM rebalance_moves r
        JOIN moves m ON m.id = r.migration_id
        WHERE r.begun_at <= ?1 AND m.open_server IS NOT NULL";
    /// Records a move.
    INSERT = "INSERT INTO rebalance_moves (migration_id, server_id, begun_at) VALUES (?1, ?2, ?3)";
    /// Deletes the records of moves that began before a time and are over.
    FORGET = "DELETE FROM rebalance_moves WHERE begun_at <= ?1 AND NOT EXISTS (
        SELECT 1 FROM moves m WHERE m.id = rebalance_moves.migration_id AND m.open_server IS NOT NULL)";
}

/// The numbers of moves that all controllers together have begun.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Moves in progress.
    pub open: i64,
    /// Moves that began within the last hour, by the database's clock.
    pub last_hour: i64,
}

/// Serializes this transaction with every other transaction that begins a move.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn lock(tx: &mut Tx<'_>) -> Result<(), Error> {
    tx.execute(LOCK, params![])?;
    Ok(())
}

/// Counts the moves.
pub fn count(tx: &mut Tx<'_>) -> Result<Count, Error> {
    let before = time::before(tx.database_time()?, WINDOW);
    let (mut open, mut last_hour) = (0, 0);
    if let Some(row) = tx.row(SINCE, params![before])? {
        (open, last_hour) = (row.int("open")?, row.int("begun")?);
    }
    if let Some(row) = tx.row(OPEN_BEFORE, params![before])? {
        open += row.int("open")?;
    }
    Ok(Count { open, last_hour })
}

/// Records a move that begins now, and deletes the records of old moves that are over.
pub fn record(tx: &mut Tx<'_>, migration: ConsumerId, server: ServerId) -> Result<(), Error> {
    let now = tx.database_time()?;
    tx.execute(FORGET, params![time::before(now, WINDOW)])?;
    tx.execute(INSERT, params![migration, server, now])?;
    Ok(())
}
