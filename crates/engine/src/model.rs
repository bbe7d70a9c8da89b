//! The values that go in and come out: providers, their inventories, and candidates.
//!
//! Plain data with public fields; how a snapshot holds it is of no concern here.

use std::sync::Arc;

use kilonova_ids::ProviderId;
use uuid::Uuid;

/// What a provider has of one resource class, and how much of it is taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Inventory {
    /// All there is.
    pub total: i64,
    /// Kept from being given out.
    pub reserved: i64,
    /// Smallest amount of one request.
    pub min_unit: i64,
    /// Largest amount of one request.
    pub max_unit: i64,
    /// Every request must be a multiple of it.
    pub step_size: i64,
    /// Overcommit.
    pub allocation_ratio: f64,
    /// Allocated now.
    pub used: i64,
}

impl Inventory {
    /// What can be given out in all: `(total - reserved) * allocation_ratio`, cut to a whole.
    pub fn capacity(&self) -> i64 {
        ((self.total - self.reserved) as f64 * self.allocation_ratio) as i64
    }

    /// The largest amount that a further request could get, steps apart; never below zero.
    pub(crate) fn room(&self) -> i64 {
        self.capacity().saturating_sub(self.used).min(self.max_unit).max(0)
    }

    /// Whether one request for this amount may be made here and fits.
    pub(crate) fn admits(&self, amount: i64) -> bool {
        amount <= self.room()
            && amount >= self.min_unit
            && (self.step_size <= 1 || amount % self.step_size == 0)
    }
}

/// One resource provider.
#[derive(Debug, Clone, PartialEq)]
pub struct Provider {
    /// Its id.
    pub id: ProviderId,
    /// Its name.
    pub name: Arc<str>,
    /// The provider above it; none for a root.
    pub parent: Option<ProviderId>,
    /// Its generation when this was read.
    pub generation: i64,
    /// What it has, by resource class.
    pub inventories: Vec<(Arc<str>, Inventory)>,
    /// Its traits.
    pub traits: Vec<Arc<str>>,
    /// The aggregates that it is in.
    pub aggregates: Vec<Uuid>,
}

/// A whole provider tree.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tree {
    /// The root first; parents before children.
    pub providers: Vec<Provider>,
}

/// One way to meet a query.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// The root of the tree that all of it hangs on.
    pub root: ProviderId,
    /// Amounts by provider and class, each pair once.
    pub allocations: Vec<(ProviderId, Arc<str>, i64)>,
    /// For each group, by suffix, the providers that serve it.
    pub mappings: Vec<(String, Vec<ProviderId>)>,
}
