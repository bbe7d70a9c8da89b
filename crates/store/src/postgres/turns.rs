//! Lets several processes take turns at one row.
//!
//! Under `REPEATABLE READ` a transaction may wait for a row that another transaction then changes.
//! The wait is then useless: the first transaction's snapshot is older than the change, so that
//! transaction must run again from the start. Within a process, lanes prevent that. Two processes
//! that constantly write one row, such as two controllers that boot servers of one project, would
//! repeat most of their work.
//!
//! After a conflict at the row of a group, the transactions of that row therefore take turns: each holds an advisory
//! lock of the database, which it takes *before* `BEGIN`, so that its snapshot shows what the previous one committed.
//! The lock belongs to the session and is released with the commit or the rollback, or with the end of the connection.
//!
//! Correctness does not depend on turns: a transaction that gets no turn in time continues without
//! one, and runs again after a conflict. A process without a conflict for [`TURNS_DURATION`] stops taking
//! turns, so a single controller pays nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Lane;

/// How long a process takes turns after a conflict.
const TURNS_DURATION: Duration = Duration::from_secs(10);
/// The class of the advisory locks: no other program that uses the database shares it.
const LOCK_CLASS: u32 = 0x4b6e_7475;
/// How long a transaction waits for its turn, in milliseconds; then it begins without a turn.
const LOCK_TIMEOUT: u32 = 1000;

/// The rows at which this process takes turns; cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Turns(Arc<Mutex<BTreeMap<Lane, Instant>>>);

impl Turns {
    /// Records that a transaction of the group of `row` had a conflict at the row `at`. Only a
    /// conflict at the group's own row begins turns.
    pub(super) fn conflict(&self, row: Option<Lane>, at: Option<Lane>) {
        if row == at
            && let Some(row) = row
        {
            self.begin(row);
        }
    }

    /// Begins turns at a row, or prolongs them.
    pub(super) fn begin(&self, row: Lane) {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.retain(|_, since| since.elapsed() < TURNS_DURATION);
        rows.insert(row, Instant::now());
    }

    /// True if the transactions of a row take turns.
    pub(super) fn are_taken(&self, row: Lane) -> bool {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.get(&row).is_some_and(|since| since.elapsed() < TURNS_DURATION)
    }
}

/// The statements that wait for the turn at a row. They run as a separate transaction.
pub(super) fn take(row: Lane) -> String {
    format!(
        "SET LOCAL lock_timeout = {LOCK_TIMEOUT}; SELECT pg_advisory_lock({LOCK_CLASS}, {})",
        row.number()
    )
}

/// The statement that ends the turn.
pub(super) fn end(row: Lane) -> String {
    format!("SELECT pg_advisory_unlock({LOCK_CLASS}, {})", row.number())
}
