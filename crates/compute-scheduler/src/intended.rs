//! The places that requests of this controller have chosen and not yet claimed.
//!
//! A plan comes before its claim, and memory shows a claim only after its commit. Without this, all boots that
//! arrive meanwhile would choose the same best device; those for which it has no room would each have the ledger
//! refuse it, and try their next candidate while the others wait.
//!
//! An intention is a hint for the order of candidates. It must never refuse a request: the plan for one that does
//! not fit beside the intentions disregards them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kilonova_engine::{Candidate, Snapshot};

use crate::Plan;

/// Maximum number of intentions that a plan regards, the newest ones.
const MOST: usize = 256;

/// The intentions of a controller; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Intended(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    last: u64,
    /// The first candidates of each plan.
    plans: BTreeMap<u64, Vec<Candidate>>,
}

/// A plan that is being claimed. It ends when this is dropped: after the claim's commit or its refusal.
#[derive(Debug)]
#[must_use = "an intention ends when it is dropped"]
pub struct Intention {
    of: Intended,
    number: u64,
}

impl Intended {
    /// The first candidate of each server of a plan is about to be claimed.
    pub fn begin(&self, plan: &Plan) -> Intention {
        let first = plan.iter().filter_map(|choice| choice.candidates.first().cloned()).collect();
        let mut open = self.lock();
        open.last += 1;
        let number = open.last;
        open.plans.insert(number, first);
        drop(open);
        Intention { of: self.clone(), number }
    }

    /// The world with the intentions as if they were claimed; `None` if there are none.
    pub(crate) fn beside(&self, world: &Snapshot) -> Option<Snapshot> {
        let open = self.lock();
        if open.plans.is_empty() {
            return None;
        }
        let mut world = world.clone();
        for candidate in open.plans.values().rev().take(MOST).flatten() {
            world.take(candidate);
        }
        Some(world)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Intention {
    fn drop(&mut self) {
        self.of.lock().plans.remove(&self.number);
    }
}
