//! The outgoing live migrations that this process knows.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kilonova_ids::ServerId;
use kilonova_node_api::Progress;

use super::schedule::{Adjustment, DowntimeSchedule};

/// The outgoing migrations of a host.
#[derive(Default)]
pub(crate) struct OutgoingMigrations {
    jobs: Mutex<HashMap<ServerId, Arc<OutgoingJob>>>,
    /// Servers known to have no outgoing migration, neither from this process nor from an earlier
    /// one.
    idle: Mutex<HashSet<ServerId>>,
}

/// An outgoing migration.
pub(super) struct OutgoingJob {
    pub(super) began: Instant,
    state: Mutex<State>,
    /// True if post-copy may be used.
    pub(super) post_copy: bool,
}

pub(super) struct State {
    pub(super) schedule: DowntimeSchedule,
    pub(super) progress: Progress,
    pub(super) last_poll: Option<Instant>,
    /// Why the migration was aborted.
    pub(super) abort_reason: Option<String>,
    /// The result of the migration call. It stays empty if another process made the call.
    pub(super) result: Option<Result<(), String>>,
    /// True if only libvirt's job shows the progress, because no call of this process will return.
    pub(super) adopted: bool,
    /// The adjustment that the last measurement calls for.
    pub(super) pending: Option<Adjustment>,
}

impl OutgoingJob {
    pub(super) fn new(schedule: DowntimeSchedule, post_copy: bool, adopted: bool) -> Self {
        let state = State {
            schedule,
            progress: Progress::default(),
            last_poll: None,
            abort_reason: None,
            result: None,
            adopted,
            pending: None,
        };
        Self { began: Instant::now(), state: Mutex::new(state), post_copy }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutgoingMigrations {
    pub(super) fn job(&self, server: ServerId) -> Option<Arc<OutgoingJob>> {
        lock(&self.jobs).get(&server).cloned()
    }

    pub(super) fn begin(&self, server: ServerId, job: OutgoingJob) -> Arc<OutgoingJob> {
        let job = Arc::new(job);
        lock(&self.jobs).insert(server, Arc::clone(&job));
        job
    }

    /// Records that the server has no outgoing migration.
    pub(crate) fn remove(&self, server: ServerId) {
        lock(&self.jobs).remove(&server);
        lock(&self.idle).insert(server);
    }

    pub(super) fn is_idle(&self, server: ServerId) -> bool {
        lock(&self.idle).contains(&server)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
