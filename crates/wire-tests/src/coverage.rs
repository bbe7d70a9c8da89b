//! The operations called at each microversion, and their results.

use std::collections::{BTreeMap, BTreeSet};

use crate::Operation;

/// The results of one operation at one minor version.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// It succeeded.
    done: bool,
    /// The microversion does not have the operation.
    absent: bool,
}

/// All calls.
#[derive(Debug, Default)]
pub struct Coverage {
    seen: BTreeMap<String, BTreeMap<u32, Seen>>,
    actions: BTreeMap<String, BTreeMap<u32, BTreeSet<u16>>>,
}

impl Coverage {
    /// Records that an operation succeeded.
    pub fn done(&mut self, operation: &str, minor: u32) {
        self.at(operation, minor).done = true;
    }

    /// Records that the microversion does not have an operation.
    pub fn absent(&mut self, operation: &str, minor: u32) {
        self.at(operation, minor).absent = true;
    }

    /// Records that an action of `POST /servers/{id}/action` succeeded or was refused as expected.
    pub fn action(&mut self, name: &str, minor: u32, refused: Option<u16>) {
        let at = self.actions.entry(name.to_owned()).or_default().entry(minor).or_default();
        at.extend(refused.into_iter().chain(refused.is_none().then_some(0)));
    }

    /// The minor versions at which an action was called.
    pub fn action_versions(&self, name: &str) -> BTreeSet<u32> {
        self.actions.get(name).into_iter().flat_map(BTreeMap::keys).copied().collect()
    }

    /// The number of versions at which an action succeeded, and the statuses of its refusals.
    pub fn action_shown(&self, name: &str) -> String {
        let Some(at) = self.actions.get(name) else { return "never called".into() };
        let done = at.values().filter(|codes| codes.contains(&0)).count();
        let codes: BTreeSet<String> =
            at.values().flatten().filter(|code| **code != 0).map(u16::to_string).collect();
        let codes: Vec<String> = codes.into_iter().collect();
        match (done, codes.is_empty()) {
            (_, true) => format!("at {done} versions"),
            (0, false) => format!("refused as upstream does: {}", codes.join(", ")),
            (_, false) => format!("at {done} versions; refused with {}", codes.join(", ")),
        }
    }

    fn at(&mut self, operation: &str, minor: u32) -> &mut Seen {
        self.seen.entry(operation.to_owned()).or_default().entry(minor).or_default()
    }

    /// The boundaries at which an operation was not called; `None` if it never succeeded.
    pub fn gaps(&self, operation: &Operation) -> Option<Vec<u32>> {
        let seen = self.seen.get(&operation.name())?;
        if !seen.values().any(|seen| seen.done) {
            return None;
        }
        let is_known = |minor: &u32| seen.get(minor).is_some_and(|seen| seen.done || seen.absent);
        Some(operation.boundaries.iter().copied().filter(|minor| !is_known(minor)).collect())
    }

    /// `2.1–2.50 at 5`: the range in which an operation succeeded, and the number of versions.
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
