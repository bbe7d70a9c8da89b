//! The input and output values: providers, inventories and candidates.
//!
//! Plain data with public fields, independent of a snapshot's internal form.

use std::sync::Arc;

use kilonova_ids::{ProviderId, ResourceClass};
use uuid::Uuid;

/// A provider's inventory of one resource class, and its usage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Inventory {
    /// Total amount.
    pub total: i64,
    /// Amount excluded from allocation.
    pub reserved: i64,
    /// Smallest amount of one allocation.
    pub min_unit: i64,
    /// Largest amount of one allocation.
    pub max_unit: i64,
    /// Every requested amount must be a multiple of it.
    pub step_size: i64,
    /// Overcommit ratio.
    pub allocation_ratio: f64,
    /// Amount allocated now.
    pub used: i64,
}

impl Inventory {
    /// An inventory without overcommit, reserved amount or usage. One request may ask for any
    /// amount up to the total.
    pub const fn of(total: i64) -> Self {
        Self {
            total,
            reserved: 0,
            min_unit: 1,
            max_unit: total,
            step_size: 1,
            allocation_ratio: 1.0,
            used: 0,
        }
    }

    /// The amount that can be allocated: `(total - reserved) * allocation_ratio`, rounded down.
    pub fn capacity(&self) -> i64 {
        ((self.total - self.reserved) as f64 * self.allocation_ratio) as i64
    }

    /// The largest amount that one more request could get, ignoring `step_size`; never negative.
    pub(crate) fn room(&self) -> i64 {
        self.capacity().saturating_sub(self.used).min(self.max_unit).max(0)
    }

    /// True if one request for this amount is valid here and fits.
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
    /// The parent provider; `None` for a root.
    pub parent: Option<ProviderId>,
    /// A number that increases with every change to the provider or its usage. In Placement it is the
    /// `version` of the provider's row, not the generation that clients see.
    pub version: i64,
    /// Its inventories by resource class.
    pub inventories: Vec<(ResourceClass, Inventory)>,
    /// Its traits.
    pub traits: Vec<Arc<str>>,
    /// Its aggregates.
    pub aggregates: Vec<Uuid>,
}

/// A complete provider tree.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tree {
    /// The root first; parents before children.
    pub providers: Vec<Provider>,
}

/// One way to meet a query.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// The root of the tree that the candidate belongs to.
    pub root: ProviderId,
    /// Amounts by provider and class; each pair appears once.
    pub allocations: Vec<(ProviderId, ResourceClass, i64)>,
    /// For each group, by suffix, the providers that serve it.
    pub mappings: Vec<(String, Vec<ProviderId>)>,
}
