//! The departures that are under way on a host, as this process knows them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kilonova_ids::ServerId;
use kilonova_node_api::Progress;

use super::course::{Act, Course};

/// The departures of a host.
#[derive(Default)]
pub(crate) struct Leaving {
    jobs: Mutex<HashMap<ServerId, Arc<Job>>>,
    /// Servers that no process before this one was sending away, or no longer.
    clear: Mutex<HashSet<ServerId>>,
}

/// A departure under way.
pub(super) struct Job {
    pub(super) began: Instant,
    state: Mutex<State>,
    /// Whether the guest may go before its memory has.
    pub(super) post_copy: bool,
}

pub(super) struct State {
    pub(super) course: Course,
    pub(super) progress: Progress,
    pub(super) asked: Option<Instant>,
    /// Why it was called off.
    pub(super) why: Option<String>,
    /// How libvirt's call ended; nobody waits for it where another process made it.
    pub(super) end: Option<Result<(), String>>,
    /// Whether libvirt's job is to be looked for, as no call of ours will end.
    pub(super) adopted: bool,
    /// What is due because of what was seen last.
    pub(super) heeded: Option<Act>,
}

impl Job {
    pub(super) fn new(course: Course, post_copy: bool, adopted: bool) -> Self {
        let state = State {
            course,
            progress: Progress::default(),
            asked: None,
            why: None,
            end: None,
            adopted,
            heeded: None,
        };
        Self { began: Instant::now(), state: Mutex::new(state), post_copy }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leaving {
    pub(super) fn job(&self, server: ServerId) -> Option<Arc<Job>> {
        lock(&self.jobs).get(&server).cloned()
    }

    pub(super) fn begin(&self, server: ServerId, job: Job) -> Arc<Job> {
        let job = Arc::new(job);
        lock(&self.jobs).insert(server, Arc::clone(&job));
        job
    }

    /// Nothing of a departure is under way.
    pub(crate) fn forget(&self, server: ServerId) {
        lock(&self.jobs).remove(&server);
        lock(&self.clear).insert(server);
    }

    pub(super) fn is_clear(&self, server: ServerId) -> bool {
        lock(&self.clear).contains(&server)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
