//! The fate of a transaction whose connection was lost during its `COMMIT`.
//!
//! Each connection has a row of its own in [`TABLE`], with the number of the transaction that it
//! committed last. The update of that row is a part of the transaction and is sent with its
//! `COMMIT`, so it costs no round trip. After a loss another connection reads the row, even on a
//! promoted standby: the row reflects the commits that are durable there, while the transaction ids
//! of `pg_xact_status` are valid on one server only.
//!
//! The reader *writes* the row, which prevents any further commit by the lost connection, whose statements may still be
//! in transit. The write waits for a lost connection that is committing. With synchronous replication, the reader's
//! commit comes later in the log, so once it is acknowledged, the outcome is durable on the standby too. Therefore the
//! answer is final.
//!
//! Identifiers are random and never used again. Rows that no connection has written for a day are
//! deleted when another connection is made ready; a missing row is an answer only as long as it cannot
//! have been deleted ([`TRUST_PERIOD`]).

use std::time::{Duration, Instant, SystemTime};

use uuid::Uuid;

/// The table of commits.
pub(super) const TABLE: &str = "store_commits";

/// How long the absence of a row means that nothing was committed. Rows are kept for a day.
const TRUST_PERIOD: Duration = Duration::from_secs(3600);

/// The outcome of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Committed,
    RolledBack,
}

/// Marks the transactions that a connection commits.
pub(super) struct Mark {
    id: Uuid,
    /// The number of the last transaction that it tried to commit.
    number: i64,
    /// True once the server has the table and the statement.
    pub(super) is_ready: bool,
}

/// A transaction whose connection was lost.
#[derive(Debug, Clone)]
pub(crate) struct Ticket {
    id: Uuid,
    number: i64,
    lost: (Instant, SystemTime),
}

impl Mark {
    pub(super) fn new() -> Self {
        Self { id: Uuid::new_v4(), number: 0, is_ready: false }
    }

    /// Creates the table, deletes the rows of connections that ended long ago, and prepares the statement that marks a
    /// commit. A connection does not wait for rows that another one is deleting.
    pub(super) fn setup(&self) -> String {
        let id = self.id;
        format!(
            "DO $$ BEGIN IF to_regclass('{TABLE}') IS NULL THEN \
             PERFORM pg_advisory_xact_lock(hashtext('{TABLE}')); \
             CREATE TABLE IF NOT EXISTS {TABLE} (id UUID PRIMARY KEY, number BIGINT NOT NULL, \
             fence BIGINT NOT NULL DEFAULT {}, used TIMESTAMPTZ NOT NULL, \
             CHECK (number <= fence)); \
             END IF; END $$; \
             DELETE FROM {TABLE} WHERE id IN (SELECT id FROM {TABLE} \
             WHERE used < now() - INTERVAL '1 day' FOR UPDATE SKIP LOCKED); \
             PREPARE {TABLE} (BIGINT) AS \
             INSERT INTO {TABLE} (id, number, used) VALUES ('{id}', $1, now()) \
             ON CONFLICT (id) DO UPDATE SET number = EXCLUDED.number, used = EXCLUDED.used",
            i64::MAX
        )
    }

    /// The statement that marks the transaction in which it runs.
    pub(super) fn advance(&mut self) -> String {
        self.number += 1;
        format!("EXECUTE {TABLE} ({})", self.number)
    }

    /// The transaction that was marked last.
    pub(super) fn ticket(&self) -> Ticket {
        Ticket { id: self.id, number: self.number, lost: (Instant::now(), SystemTime::now()) }
    }
}

impl Ticket {
    /// The statement that reads the row and prevents the lost connection from committing.
    /// Transactions have positive numbers.
    pub(super) fn lookup(&self) -> String {
        let id = self.id;
        format!(
            "INSERT INTO {TABLE} (id, number, fence, used) VALUES ('{id}', -1, -1, now()) \
             ON CONFLICT (id) DO UPDATE SET fence = {TABLE}.number, used = now() RETURNING number"
        )
    }

    /// The meaning of the number in the row; `None` if the row proves nothing.
    pub(super) fn fate(&self, number: i64) -> Option<Fate> {
        match number {
            number if number == self.number => Some(Fate::Committed),
            // The row shows an earlier commit of the connection, so it has not been deleted.
            1.. => Some(Fate::RolledBack),
            _ => self.is_recent().then_some(Fate::RolledBack),
        }
    }

    /// True while a missing row cannot have been deleted. Time during which the process is
    /// suspended counts, because one of the clocks continues.
    pub(super) fn is_recent(&self) -> bool {
        let (instant, time) = self.lost;
        let by_clock = SystemTime::now().duration_since(time).unwrap_or_default();
        instant.elapsed().max(by_clock) < TRUST_PERIOD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_an_answer_and_its_absence_only_for_an_hour() {
        let mut mark = Mark::new();
        assert!(mark.advance().ends_with("(1)") && mark.advance().ends_with("(2)"));
        let mut ticket = mark.ticket();
        assert_eq!(ticket.fate(2), Some(Fate::Committed));
        assert_eq!(ticket.fate(1), Some(Fate::RolledBack));
        assert_eq!(ticket.fate(-1), Some(Fate::RolledBack));
        ticket.lost.1 -= Duration::from_secs(7200);
        assert_eq!(ticket.fate(2), Some(Fate::Committed));
        assert_eq!(ticket.fate(1), Some(Fate::RolledBack));
        assert_eq!(ticket.fate(-1), None, "the row may have been deleted");
    }
}
