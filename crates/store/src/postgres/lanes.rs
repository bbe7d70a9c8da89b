//! Who waits for whom inside this process, so that writers to one row queue up here and not in the
//! database.
//!
//! Under `REPEATABLE READ` a transaction that waited for a row which then changed has to be run
//! again, from the start: with many writers on one row most of the work is thrown away, and nothing
//! says that anyone's turn ever comes. A lane is a lock for a key (the row's). A transaction takes
//! the lanes of the rows that it is known to write before it begins, and after a conflict the lane
//! of the row it met. Lanes keep nothing right: the database does that, between processes too.
//!
//! Lanes come before a connection is taken, in the order of their numbers; otherwise those who wait
//! for lanes could hold the connections that their holders need.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

/// Keys share a lane when their hashes meet: they wait without need, no more.
const LANES: u64 = 1024;

/// The number of a key's lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lane(u64);

impl Lane {
    /// The lane of a row's key.
    pub(crate) fn of(key: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        Self(hasher.finish() % LANES)
    }
}

pub(super) struct Lanes(Vec<Arc<Mutex<()>>>);

impl Lanes {
    pub(super) fn new() -> Self {
        Self((0..LANES).map(|_| Arc::default()).collect())
    }

    /// Waits for all of them; they are free again when the answer is dropped.
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
