//! The candidates that requests of this controller have chosen and not yet claimed.
//!
//! A plan precedes its claim, and memory shows a claim only after its commit. Without intentions, all boots that
//! arrive meanwhile would choose the same best device. The ledger would refuse each boot for which the device has
//! no room, and that boot would try its next candidate while the others wait.
//!
//! An intention is a hint for the order of candidates. It must never cause a refusal: a request that does not fit
//! next to the intentions is planned without them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kilonova_engine::{Candidate, Snapshot};

use crate::Plan;

/// Maximum number of intended candidates that a plan considers: those of the newest plans.
const MAX_INTENDED: usize = 256;

/// The intentions of a controller; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Intended(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    last: u64,
    /// The first candidates of each plan.
    plans: BTreeMap<u64, Arc<[Candidate]>>,
}

/// A plan that is being claimed. The intention ends when this value is dropped: after the claim's commit or refusal.
#[derive(Debug)]
#[must_use = "an intention ends when it is dropped"]
pub struct Intention {
    of: Intended,
    number: u64,
}

impl Intended {
    /// Records that the first candidate of each server of a plan is about to be claimed.
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
    pub(crate) fn with_intentions(&self, world: &Snapshot) -> Option<Snapshot> {
        // Every boot takes the lock, and releases it before the candidates are counted.
        let newest: Vec<_> = self.lock().plans.values().rev().take(MAX_INTENDED).cloned().collect();
        if newest.is_empty() {
            return None;
        }
        let mut world = world.clone();
        for candidate in newest.iter().flat_map(|plan| plan.iter()).take(MAX_INTENDED) {
            world.add_usage(candidate);
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

#[cfg(test)]
mod tests {
    use kilonova_engine::{Inventory, Provider, Tree};
    use kilonova_ids::{ProviderId, ResourceClass};

    use super::*;
    use crate::Choice;

    const HOST: ProviderId = ProviderId::from_bytes([1; 16]);

    fn world() -> Snapshot {
        let provider = Provider {
            id: HOST,
            name: "host".into(),
            parent: None,
            version: 0,
            inventories: vec![(ResourceClass::verbatim("VCPU"), Inventory::of(10_000))],
            traits: Vec::new(),
            aggregates: Vec::new(),
        };
        let mut world = Snapshot::default();
        world.upsert(Tree { providers: vec![provider] });
        world
    }

    /// A plan of servers with `cpus` CPUs each.
    fn plan(servers: usize, cpus: i64) -> Plan {
        let candidate = Candidate {
            root: HOST,
            allocations: vec![(HOST, ResourceClass::verbatim("VCPU"), cpus)],
            mappings: Vec::new(),
        };
        vec![Choice { candidates: vec![candidate], ..Choice::default() }; servers]
    }

    #[test]
    fn a_plan_regards_a_limited_number_of_candidates_of_the_newest_plans() {
        let (world, intended) = (world(), Intended::default());
        let used = || {
            let world = intended.with_intentions(&world)?;
            let host = world.tree(HOST)?.providers().find(|provider| provider.id == HOST)?;
            host.inventories.first().map(|(_, inventory)| inventory.used)
        };
        assert_eq!(used(), None);
        let many = intended.begin(&plan(1_000, 1));
        assert_eq!(used(), Some(256), "one plan of many servers");
        let few = intended.begin(&plan(6, 10));
        assert_eq!(used(), Some(6 * 10 + 250), "the newest first");
        drop(many);
        assert_eq!(used(), Some(60));
        drop(few);
        assert_eq!(used(), None);
    }
}
