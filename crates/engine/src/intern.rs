//! Interns the names of classes and traits as small numbers, so that searches compare integers.
//!
//! Numbers are never reused: the vocabulary of a cloud is small and grows slowly.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use kilonova_ids::ResourceClass;

/// The number of a resource class or of a trait.
pub(crate) type Name = u32;

/// Stands for every name that has not been interned. It equals no interned number.
pub(crate) const UNKNOWN: Name = Name::MAX;

/// The trait of a sharing provider: trees in one of its aggregates may use its inventory.
pub(crate) const SHARES: &str = "MISC_SHARES_VIA_AGGREGATE";

/// All names of one snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    pub(crate) classes: Interned<ResourceClass>,
    pub(crate) traits: Interned<Arc<str>>,
}

#[derive(Debug, Clone)]
struct Table<T> {
    numbers: HashMap<T, Name>,
    names: Vec<T>,
}

/// The names of one kind. Copied only when a new name appears.
#[derive(Debug, Clone)]
pub(crate) struct Interned<T>(Arc<Table<T>>);

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self(Arc::new(Table { numbers: HashMap::new(), names: Vec::new() }))
    }
}

impl<T: Clone + Eq + Hash + Borrow<str>> Interned<T> {
    pub(crate) fn find(&self, name: &str) -> Name {
        self.0.numbers.get(name).copied().unwrap_or(UNKNOWN)
    }

    pub(crate) fn intern(&mut self, name: &T) -> Name {
        let known = self.find(name.borrow());
        if known != UNKNOWN {
            return known;
        }
        let table = Arc::make_mut(&mut self.0);
        let number = Name::try_from(table.names.len()).unwrap_or(UNKNOWN);
        table.names.push(name.clone());
        table.numbers.insert(name.clone(), number);
        number
    }

    /// The numbers of all names with a prefix.
    pub(crate) fn beginning_with(&self, prefix: &str) -> Vec<Name> {
        let all = self.0.numbers.iter();
        let found = all.filter(|(name, _)| (*name).borrow().starts_with(prefix));
        let mut numbers: Vec<Name> = found.map(|(_, number)| *number).collect();
        numbers.sort_unstable();
        numbers
    }

    pub(crate) fn name(&self, number: Name) -> Option<&T> {
        self.0.names.get(number as usize)
    }
}
