//! Why a server that exists has no place, worked out after the write transaction that found none.
//!
//! ```text
//!   write: no place ──► undone ──► reason, from memory ──► write again, which notes the reason
//!                                                          (or finds a place that has become free)
//! ```
//!
//! The reason takes a walk over the hosts, and a write transaction holds up all others. A process
//! that dies between the two writes leaves the request as it was: not begun, or to be taken up again.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use kilonova_engine::{Query, Snapshot};
use kilonova_ids::ServerId;

use super::facts::Facts;
use super::place::places;
use super::reason::NoHost;
use super::scene::Scene;
use crate::Compute;
use crate::db::servers::Spec;

/// A search that found no place, with all that it looked at.
#[derive(Clone)]
pub struct Unplaced {
    /// Which server has no place.
    pub(super) server: ServerId,
    pub(super) project_id: String,
    pub(super) world: Arc<Snapshot>,
    pub(super) query: Query,
    pub(super) spec: Spec,
    pub(super) facts: Facts,
    pub(super) excluded: HashSet<String>,
    pub(super) forced: bool,
    pub(super) now: i64,
}

impl fmt::Debug for Unplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unplaced").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Unplaced {
    pub(super) fn scene<'a>(&'a self, compute: &'a Compute) -> Scene<'a> {
        Scene {
            fleet: &compute.fleet,
            rules: &compute.options.scheduler,
            spec: &self.spec,
            project_id: &self.project_id,
            group: self.facts.group.as_ref().map(|(_, group)| group.clone()),
            excluded: &self.excluded,
            loads: &self.facts.loads,
            same_host: self.facts.same_host.as_ref(),
            different_host: self.facts.different_host.as_ref(),
            forced: self.forced,
            now: self.now,
        }
    }

    /// Why there is no place. Walks over the hosts: never call it in a write transaction.
    pub fn reason(&self, compute: &Compute) -> NoHost {
        match places(&self.world, &self.scene(compute), &self.query, 1) {
            Err(reason) => reason,
            Ok(_) => {
                NoHost::new("Every host that had room was taken by other requests; try again.")
            }
        }
    }
}

/// The reasons that were worked out for a transaction which is run again. The default answers every
/// question with one short sentence.
#[derive(Debug, Clone, Default)]
pub struct Reasons(Option<Arc<Mutex<HashMap<ServerId, NoHost>>>>);

impl Reasons {
    /// For a transaction whose caller works reasons out.
    pub(crate) fn asked_for() -> Self {
        Self(Some(Arc::default()))
    }

    /// Keeps a reason for the next run.
    pub(crate) fn tell(&self, unplaced: &Unplaced, compute: &Compute) {
        if let Some(known) = &self.0 {
            let reason = unplaced.reason(compute);
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(unplaced.server, reason);
        }
    }

    /// Why the server has no place.
    ///
    /// # Errors
    /// The search itself, when somebody is to work the reason out first.
    pub(crate) fn of(&self, unplaced: Box<Unplaced>) -> Result<NoHost, Box<Unplaced>> {
        let Some(known) = &self.0 else { return Ok(NoHost::new("No host has room for it.")) };
        let known = known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&unplaced.server).cloned().ok_or(unplaced)
    }
}
