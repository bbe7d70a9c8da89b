//! One worker for each server with pending work, so that steps for a server never overlap.
//!
//! A worker always takes the newest document and skips older ones, except that a document of a complete batch replaces
//! any other. It ends when no document is newer, so idle servers cost nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kilonova_ids::ServerId;
use kilonova_node_api::{Desired, Document, Observation, Outcome, Phase};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::work::{Applied, Halt, Work};

const QUEUE: usize = 1024;
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// Polling interval for a migrating guest.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Interval between progress reports on a migrating guest.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Observations are boxed, because a channel allocates its slots in advance.
type Reports = mpsc::Sender<Box<Observation>>;
type Slots = Mutex<HashMap<ServerId, watch::Sender<Arc<Document>>>>;

/// The workers of a host. Dropping it stops them all.
pub(super) struct Workers {
    work: Arc<Work>,
    slots: Arc<Slots>,
    reports: Reports,
    tasks: JoinSet<()>,
}

impl Workers {
    pub(super) fn new(work: Arc<Work>) -> (Self, mpsc::Receiver<Box<Observation>>) {
        let (reports, receiver) = mpsc::channel(QUEUE);
        (Self { work, slots: Arc::default(), reports, tasks: JoinSet::new() }, receiver)
    }

    /// Reports an observation that does not come from a worker.
    pub(super) async fn report(&self, observation: Observation) {
        // The receiver is dropped only when the agent stops.
        let _ = self.reports.send(Box::new(observation)).await;
    }

    /// True if a worker is busy with the server.
    pub(super) fn is_busy(&self, server: ServerId) -> bool {
        lock(&self.slots).get(&server).is_some_and(|slot| slot.receiver_count() > 0)
    }

    /// Hands a document to its server's worker. A document of a complete batch replaces any other
    /// one: the controller may have lost the newer ones.
    pub(super) fn dispatch(&mut self, document: Document, complete: bool) {
        while let Some(ended) = self.tasks.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "the task that carries out documents panicked");
            }
        }
        self.work.mark_documented(document.server);
        let server = document.server;
        let document = Arc::new(document);
        let mut slots = lock(&self.slots);
        let receiver = match slots.entry(server) {
            Entry::Occupied(entry) if entry.get().receiver_count() > 0 => {
                entry.get().send_if_modified(|newest| {
                    let replaces = document.generation > newest.generation
                        || (complete && document.generation != newest.generation);
                    if replaces {
                        *newest = document;
                    }
                    replaces
                });
                return;
            }
            Entry::Occupied(mut entry) => {
                let (sender, receiver) = watch::channel(document);
                entry.insert(sender);
                receiver
            }
            Entry::Vacant(entry) => {
                let (sender, receiver) = watch::channel(document);
                entry.insert(sender);
                receiver
            }
        };
        drop(slots);
        let (work, slots, reports) =
            (Arc::clone(&self.work), Arc::clone(&self.slots), self.reports.clone());
        self.tasks.spawn(async move { serve(server, receiver, work, slots, reports).await });
    }
}

async fn serve(
    server: ServerId,
    mut newest: watch::Receiver<Arc<Document>>,
    work: Arc<Work>,
    slots: Arc<Slots>,
    reports: Reports,
) {
    let mut retry = FIRST_RETRY;
    let mut last_report: Option<Instant> = None;
    loop {
        let document = Arc::clone(&newest.borrow_and_update());
        let say = |phase: Phase| {
            let outcome = Outcome::Working { phase };
            // A lost phase report does no harm.
            let _ =
                reports.try_send(Box::new(Observation::new(server, document.generation, outcome)));
        };
        let applied = match work.carry_out(&document, &newest, &say).await {
            Ok(applied) => applied,
            Err(Halt::Superseded) => {
                retry = FIRST_RETRY;
                continue;
            }
            Err(Halt::Failed { step, message }) => {
                tracing::warn!(host = %work.host(), %server, step, %message, "could not carry out a document");
                Applied::of(Outcome::Failed { step, message })
            }
        };
        let at_start = work.is_first_check(server) && applied.found;
        let Applied { outcome, volumes, .. } = applied;
        let unfinished =
            matches!((&document.desired, &outcome), (Desired::Absent, Outcome::Failed { .. }));
        let migrating = matches!(outcome, Outcome::MigratingOut(_));
        let generation = document.generation;
        let machine_type = work.machine_type(server, &outcome).await;
        let observation = Observation {
            at_start,
            volumes,
            machine_type,
            ..Observation::new(server, generation, outcome)
        };
        if migrating {
            // A migrating guest is polled often but reported only now and then.
            if last_report.is_none_or(|last_report| last_report.elapsed() >= REPORT_INTERVAL) {
                last_report = Some(Instant::now());
                if reports.send(Box::new(observation)).await.is_err() {
                    return;
                }
            }
            let _ = tokio::time::timeout(POLL_INTERVAL, newest.changed()).await;
            continue;
        }
        if reports.send(Box::new(observation)).await.is_err() {
            return;
        }
        if unfinished {
            // A removal is retried until it succeeds or a newer document arrives.
            if tokio::time::timeout(retry, newest.changed()).await.is_ok() {
                retry = FIRST_RETRY;
            } else {
                retry = retry.saturating_mul(2).min(LONGEST_RETRY);
            }
            continue;
        }
        let mut slots = lock(&slots);
        if !newest.has_changed().unwrap_or(false) {
            slots.remove(&server);
            return;
        }
        retry = FIRST_RETRY;
    }
}

fn lock(slots: &Slots) -> MutexGuard<'_, HashMap<ServerId, watch::Sender<Arc<Document>>>> {
    slots.lock().unwrap_or_else(PoisonError::into_inner)
}
