//! Counters of the shared commits and conflicts of a process's transactions.
//!
//! No decision depends on the counters: they are for operators, and for tests that compare counts
//! instead of times. On SQLite, where writers run one after the other, they stay 0.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a process; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Traffic(Arc<Counts>);

#[derive(Default)]
struct Counts {
    conflicts: AtomicU64,
    groups: AtomicU64,
    grouped: AtomicU64,
    split: AtomicU64,
    turns: AtomicU64,
}

/// The shared commits and conflicts of transactions on PostgreSQL since the process started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contention {
    /// Transactions that ran again because another one had changed the same row. Each transaction of a group counts.
    pub conflicts: u64,
    /// Commits that several transactions shared.
    pub groups: u64,
    /// The transactions that shared them.
    pub grouped: u64,
    /// Groups whose transactions ran separately after all, for example because a statement failed or waited too long
    /// for a lock.
    pub split: u64,
    /// Transactions and groups that took turns with those of other processes, to avoid conflicts.
    pub turns: u64,
}

impl Traffic {
    /// Records that this many transactions run again after a conflict.
    pub(crate) fn conflict(&self, transactions: usize) {
        self.0.conflicts.fetch_add(transactions as u64, Ordering::Relaxed);
    }

    /// Records that this many transactions have shared a commit.
    pub(crate) fn shared(&self, transactions: usize) {
        self.0.groups.fetch_add(1, Ordering::Relaxed);
        self.0.grouped.fetch_add(transactions as u64, Ordering::Relaxed);
    }

    /// Records that the transactions of a group run separately.
    pub(crate) fn split(&self) {
        self.0.split.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a transaction or a group takes its turn.
    pub(crate) fn takes_turn(&self) {
        self.0.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// The counters now.
    pub(crate) fn read(&self) -> Contention {
        let Counts { conflicts, groups, grouped, split, turns } = &*self.0;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Contention {
            conflicts: read(conflicts),
            groups: read(groups),
            grouped: read(grouped),
            split: read(split),
            turns: read(turns),
        }
    }
}
