//! Which operations were called at which microversions, and what came back.

use std::collections::{BTreeMap, BTreeSet};

use crate::Operation;

/// What came back from one operation at one minor version.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// It was done.
    done: bool,
    /// It was refused because the microversion has no such operation.
    absent: bool,
}

/// All calls.
#[derive(Debug, Default)]
pub struct Coverage {
    seen: BTreeMap<String, BTreeMap<u32, Seen>>,
    actions: BTreeSet<String>,
}

impl Coverage {
    /// An operation was carried out.
    pub fn done(&mut self, operation: &str, minor: u32) {
        self.at(operation, minor).done = true;
    }

    /// An operation was refused as one that the microversion does not have.
    pub fn absent(&mut self, operation: &str, minor: u32) {
        self.at(operation, minor).absent = true;
    }

    /// An action of `POST /servers/{id}/action` was carried out.
    pub fn action(&mut self, name: &str) {
        self.actions.insert(name.to_owned());
    }

    /// Whether an action was carried out.
    pub fn has_action(&self, name: &str) -> bool {
        self.actions.contains(name)
    }

    fn at(&mut self, operation: &str, minor: u32) -> &mut Seen {
        self.seen.entry(operation.to_owned()).or_default().entry(minor).or_default()
    }

    /// The boundaries at which an operation was not called; `None` when it was never carried out.
    pub fn gaps(&self, operation: &Operation) -> Option<Vec<u32>> {
        let seen = self.seen.get(&operation.name())?;
        if !seen.values().any(|seen| seen.done) {
            return None;
        }
        let is_known = |minor: &u32| seen.get(minor).is_some_and(|seen| seen.done || seen.absent);
        Some(operation.boundaries.iter().copied().filter(|minor| !is_known(minor)).collect())
    }

    /// `2.1–2.104 at 5`: where an operation was carried out, and at how many versions.
    pub fn shown(&self, operation: &Operation) -> String {
        let Some(seen) = self.seen.get(&operation.name()) else { return "never called".into() };
        let done: Vec<u32> =
            seen.iter().filter(|(_, seen)| seen.done).map(|(minor, _)| *minor).collect();
        match (done.first(), done.last()) {
            (Some(first), Some(last)) => {
                format!("2.{first} to 2.{last}, at {} versions", done.len())
            }
            _ => "never carried out".into(),
        }
    }
}
