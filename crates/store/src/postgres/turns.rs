//! Turns of several processes at one row.
//!
//! Under `REPEATABLE READ` a transaction that waits for a row which another one then changes has waited for
//! nothing: its snapshot is older, and it runs again from the start. Within a process the lanes prevent that. Two
//! processes that write one row all the time, such as two controllers that boot servers of one project, would repeat
//! most of their work.
//!
//! After a conflict at the row of a group, the transactions of that row therefore take turns: each holds an advisory
//! lock of the database, which it takes *before* `BEGIN`, so that its snapshot shows what the previous one committed.
//! The lock belongs to the session and is released with the commit or the rollback, or with the end of the connection.
//!
//! A turn is not needed for correctness: a transaction that does not get one in time goes on without it, and a conflict repeats the
//! transaction. A process that meets nobody for [`LASTS`] stops taking turns, so one controller alone pays nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Lane;

/// How long a process takes turns after a conflict.
const LASTS: Duration = Duration::from_secs(10);
/// The class of the advisory locks: no other program of the same database shares it.
const CLASS: u32 = 0x4b6e_7475;
/// How long a transaction waits for its turn, in milliseconds; then it begins without.
const PATIENCE: u32 = 1000;

/// The rows at which this process takes turns; cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Turns(Arc<Mutex<BTreeMap<Lane, Instant>>>);

impl Turns {
    /// Records a conflict of a transaction of the group of `row`, at the row `at`.
    pub(super) fn met(&self, row: Option<Lane>, at: Option<Lane>) {
        if row == at
            && let Some(row) = row
        {
            self.begin(row);
        }
    }

    /// Takes turns at a row from now on.
    pub(super) fn begin(&self, row: Lane) {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.retain(|_, since| since.elapsed() < LASTS);
        rows.insert(row, Instant::now());
    }

    /// True if the transactions of a row take turns.
    pub(super) fn are_taken(&self, row: Lane) -> bool {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.get(&row).is_some_and(|since| since.elapsed() < LASTS)
    }
}

/// The statements that wait for the turn at a row. They are one transaction of their own.
pub(super) fn take(row: Lane) -> String {
    format!(
        "SET LOCAL lock_timeout = {PATIENCE}; SELECT pg_advisory_lock({CLASS}, {})",
        row.number()
    )
}

/// The statement that ends the turn.
pub(super) fn end(row: Lane) -> String {
    format!("SELECT pg_advisory_unlock({CLASS}, {})", row.number())
}
