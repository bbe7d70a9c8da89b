//! Counters of the plans and claims of a controller, for operators and for tests that compare counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the process started; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    plans: AtomicU64,
    refused: AtomicU64,
}

impl Tally {
    /// Number of plans for boots: one for each request, and one for each further attempt made because memory was
    /// outdated, other requests took the room, or the NUMA topology did not fit.
    pub fn plans(&self) -> u64 {
        self.0.plans.load(Ordering::Relaxed)
    }

    /// Number of planned candidates for which the ledger no longer had room.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    pub(super) fn planned(&self) {
        self.0.plans.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refuses(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
    }
}
