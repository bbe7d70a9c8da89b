//! Determines why an existing server has no valid host, after the write transaction that found
//! none.
//!
//! ```text
//!   write: no valid host ─► roll back ─► determine the reason, from memory
//!                                          └─► write again: record the reason,
//!                                              or use a host that has become free
//! ```
//!
//! Determining the reason requires examining the hosts. A write transaction that stayed open meanwhile would block all
//! others. If the process dies between the two writes, the request is unchanged and is retried.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use kilonova_compute_db::servers::Spec;
use kilonova_engine::{Query, Snapshot};
use kilonova_ids::{HostName, ServerId};

use super::constraints::{Constraints, Scope};
use super::facts::Facts;
use super::place::places;
use super::reason::NoHost;

/// The input of a search that found no host.
#[derive(Clone)]
pub struct Unplaced {
    /// The server.
    pub(super) server: ServerId,
    pub(super) project_id: String,
    pub(super) world: Arc<Snapshot>,
    pub(super) query: Query,
    pub(super) spec: Spec,
    pub(super) facts: Facts,
    pub(super) excluded: HashSet<HostName>,
    pub(super) forced: bool,
    pub(super) now: Timestamp,
}

impl fmt::Debug for Unplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unplaced").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Unplaced {
    pub(super) fn constraints<'a>(&'a self, scope: Scope<'a>) -> Constraints<'a> {
        let server = (&*self.project_id, &self.spec);
        let constraints = Constraints::new(scope, server, &self.facts, &self.excluded, self.now);
        Constraints { forced: self.forced, ..constraints }
    }

    /// The reason why no host is valid. Examines the hosts: never call this in a write transaction.
    pub fn reason(&self, scope: Scope<'_>) -> NoHost {
        match places(&self.world, &self.constraints(scope), &self.query, 1) {
            Err(reason) => reason,
            Ok(_) => {
                NoHost::new("Every host that had room was taken by other requests; try again.")
            }
        }
    }
}

/// The reasons that were determined for a transaction that runs again. The default gives every server the
/// same short reason.
#[derive(Debug, Clone, Default)]
pub struct Reasons(Option<Arc<Mutex<HashMap<ServerId, NoHost>>>>);

impl Reasons {
    /// No reasons yet. [`Reasons::of`] fails until the caller of the transaction has determined the reason.
    pub fn to_determine() -> Self {
        Self(Some(Arc::default()))
    }

    /// Determines a reason, and stores it for the next run.
    pub fn determine(&self, unplaced: &Unplaced, scope: Scope<'_>) {
        if let Some(known) = &self.0 {
            let reason = unplaced.reason(scope);
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(unplaced.server, reason);
        }
    }

    /// The reason for a server.
    ///
    /// # Errors
    /// `unplaced` itself, if the caller must determine the reason first.
    pub fn of(&self, unplaced: Box<Unplaced>) -> Result<NoHost, Box<Unplaced>> {
        let Some(known) = &self.0 else {
            return Ok(NoHost::new("No host has room for the server."));
        };
        let known = known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&unplaced.server).cloned().ok_or(unplaced)
    }
}
