//! Locks within this process that serialize writers to one row, so that they wait here and not in
//! the database.
//!
//! Under `REPEATABLE READ` a transaction that waited for a row which then changed must run again
//! from the start: with many writers of one row most work is wasted, and no writer is guaranteed to
//! proceed. A lane is a lock for the key of a row. Before a transaction begins, it takes the lanes
//! of the rows that it is known to write and, after a conflict, the lane of the conflicting row.
//! Lanes are not needed for correctness, which the database ensures, even between processes.
//!
//! Lanes are taken in ascending order, and before a connection: otherwise transactions that wait for
//! lanes could hold the connections that the lanes' owners need.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::Value;

/// The number of lanes. Keys that share a lane only cause unnecessary waits.
const LANES: u64 = 1024;

/// The bound of numbers that are keys of rows.
const MAX_KEY: i64 = 1 << 40;

/// The number of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lane(u64);

impl Lane {
    /// The lane of a row's key.
    pub(crate) fn of(key: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        Self(hasher.finish() % LANES)
    }

    /// The lane of the row that a statement writes. `key` is the statement's first parameter, which is
    /// the key of that row.
    pub(crate) fn of_key(key: &Value) -> Option<Self> {
        match key {
            Value::Text(key) => Some(Self::of(key)),
            // Larger numbers are times.
            Value::Int(key @ 0..MAX_KEY) => Some(Self::of(&key.to_string())),
            Value::Null | Value::Int(_) | Value::Real(_) => None,
        }
    }

    /// Its number, for a lock in the database.
    pub(super) fn number(self) -> u64 {
        self.0
    }
}

/// The locks; cheap to clone.
#[derive(Clone)]
pub(super) struct Lanes(Arc<[Arc<Mutex<()>>]>);

impl Lanes {
    pub(super) fn new() -> Self {
        Self((0..LANES).map(|_| Arc::default()).collect())
    }

    /// Waits for all lanes; dropping the result releases them.
    pub(super) async fn take(&self, lanes: &BTreeSet<Lane>) -> Vec<OwnedMutexGuard<()>> {
        let mut held = Vec::with_capacity(lanes.len());
        for lane in lanes {
            if let Some(lock) = self.0.get(lane.0 as usize) {
                held.push(Arc::clone(lock).lock_owned().await);
            }
        }
        held
    }
}
