//! Interns the names of classes and traits as small numbers, so that searches compare integers.
//!
//! Numbers are never reused: the vocabulary of a cloud is small and grows slowly.

use std::collections::HashMap;
use std::sync::Arc;

/// A resource class or a trait.
pub(crate) type Name = u32;

/// The number of a name that no provider has. It equals no interned number.
pub(crate) const UNKNOWN: Name = Name::MAX;

/// The trait of a sharing provider: trees in one of its aggregates may use its inventory.
pub(crate) const SHARES: &str = "MISC_SHARES_VIA_AGGREGATE";

#[derive(Debug, Clone, Default)]
struct Table {
    numbers: HashMap<Arc<str>, Name>,
    names: Vec<Arc<str>>,
}

/// All names of one snapshot. Copied only when a new name appears.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names(Arc<Table>);

impl Names {
    pub(crate) fn find(&self, name: &str) -> Name {
        self.0.numbers.get(name).copied().unwrap_or(UNKNOWN)
    }

    pub(crate) fn intern(&mut self, name: &Arc<str>) -> Name {
        let known = self.find(name);
        if known != UNKNOWN {
            return known;
        }
        let table = Arc::make_mut(&mut self.0);
        let number = Name::try_from(table.names.len()).unwrap_or(UNKNOWN);
        table.names.push(Arc::clone(name));
        table.numbers.insert(Arc::clone(name), number);
        number
    }

    pub(crate) fn name(&self, number: Name) -> Option<&Arc<str>> {
        self.0.names.get(number as usize)
    }
}
