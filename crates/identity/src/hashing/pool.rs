//! Dedicated threads that compute hashes, so that logins never occupy database threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use argon2::{Algorithm, Argon2, Params, PasswordHash, PasswordHasher, PasswordVerifier, Version};
use tokio::sync::oneshot;

use super::queue::{Eviction, Party, Queue};
use crate::Error;

/// Maximum number of threads, because each hash uses 19 MiB while it is computed.
const MOST_THREADS: usize = 8;

/// A hashing task.
pub(super) enum Task {
    /// Hash a secret.
    Hash(String),
    /// Verify a secret against its hash.
    Verify { secret: String, stored: String },
}

/// The result of a task.
pub(super) enum Outcome {
    Hashed(Result<String, Error>),
    Fits(bool),
}

struct Work {
    task: Task,
    /// The number of hashes computed before this work arrived.
    hashes_at_arrival: u64,
    answer: oneshot::Sender<Result<Outcome, Eviction>>,
}

/// The threads and their queue. The threads end when the pool is dropped.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: usize,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    params: Params,
    hashes: AtomicU64,
    refused: AtomicU64,
    micros: AtomicU64,
    passed: AtomicU64,
}

struct State {
    queue: Queue<Work>,
    stopping: bool,
}

impl Pool {
    /// Starts threads for half of the cores, at most [`MOST_THREADS`]; the other cores serve requests.
    pub(super) fn new(params: Params, waiting: usize) -> Result<Self, Error> {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let threads = (cores / 2).clamp(1, MOST_THREADS);
        let shared = Arc::new(Shared {
            state: Mutex::new(State { queue: Queue::new(waiting), stopping: false }),
            wake: Condvar::new(),
            params,
            hashes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            micros: AtomicU64::new(0),
            passed: AtomicU64::new(0),
        });
        let pool = Self { shared: Arc::clone(&shared), threads };
        for number in 0..threads {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name(format!("kilonova-hash-{number}"))
                .spawn(move || shared.work(number == 0))
                .map_err(|e| Error::Hash(format!("cannot start a thread for hashes: {e}")))?;
        }
        Ok(pool)
    }

    /// Queues a task and waits for its outcome.
    pub(super) async fn run(
        &self,
        party: Party,
        likely: bool,
        task: Task,
    ) -> Result<Outcome, Error> {
        let (answer, answered) = oneshot::channel();
        let work = Work { task, hashes_at_arrival: self.hashes(), answer };
        let evicted = self.shared.swept().queue.push(party, likely, work);
        if let Some((work, reason)) = evicted {
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
            // The receiver is gone if the client disconnected.
            drop(work.answer.send(Err(reason)));
        }
        self.shared.wake.notify_one();
        match answered.await {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(reason)) => Err(Error::Busy {
                own: reason == Eviction::OwnParty,
                seconds: self.backlog().as_secs() + 1,
            }),
            Err(_) => Err(Error::Hash("the hashing thread ended".into())),
        }
    }

    /// The estimated time to process the current queue.
    fn backlog(&self) -> Duration {
        let waiting = self.shared.lock().queue.len() / self.threads;
        self.typical().saturating_mul(u32::try_from(waiting).unwrap_or(u32::MAX))
    }

    /// The average time to compute a hash.
    pub(super) fn typical(&self) -> Duration {
        Duration::from_micros(self.shared.micros.load(Ordering::Relaxed))
    }

    /// Hashes computed since the start.
    pub(super) fn hashes(&self) -> u64 {
        self.shared.hashes.load(Ordering::Relaxed)
    }

    /// Hashes computed between the arrival of the last successful login and its turn.
    pub(super) fn passed(&self) -> u64 {
        self.shared.passed.load(Ordering::Relaxed)
    }

    /// Logins refused since the start.
    pub(super) fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// Logins in the queue.
    pub(super) fn waiting(&self) -> usize {
        self.shared.swept().queue.len()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.wake.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state and removes logins of disconnected clients.
    fn swept(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.queue.sweep(|work| !work.answer.is_closed());
        state
    }

    /// Runs until the pool is dropped. The first thread starts by computing a hash of its own, to measure how long a
    /// hash takes.
    fn work(&self, first: bool) {
        if first {
            self.compute(Task::Hash("how long does it take".into()));
        }
        while let Some(work) = self.next() {
            if work.answer.is_closed() {
                continue;
            }
            let passed = self.hashes.load(Ordering::Relaxed).saturating_sub(work.hashes_at_arrival);
            let outcome = self.compute(work.task);
            if let Outcome::Fits(true) = outcome {
                self.passed.store(passed, Ordering::Relaxed);
            }
            self.hashes.fetch_add(1, Ordering::Relaxed);
            // The receiver is gone if the client disconnected.
            drop(work.answer.send(Ok(outcome)));
        }
    }

    fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if state.stopping {
                return None;
            }
            state.queue.sweep(|work: &Work| !work.answer.is_closed());
            if let Some(work) = state.queue.pop() {
                return Some(work);
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn compute(&self, task: Task) -> Outcome {
        let begun = Instant::now();
        let outcome = match task {
            Task::Hash(secret) => Outcome::Hashed(hash(self.params.clone(), &secret)),
            Task::Verify { secret, stored } => {
                Outcome::Fits(PasswordHash::new(&stored).is_ok_and(|hash| {
                    Argon2::default().verify_password(secret.as_bytes(), &hash).is_ok()
                }))
            }
        };
        let took = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let before = self.micros.load(Ordering::Relaxed);
        let typical = if before == 0 { took } else { (before * 7 + took) / 8 };
        self.micros.store(typical, Ordering::Relaxed);
        outcome
    }
}

fn hash(params: Params, secret: &str) -> Result<String, Error> {
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    argon2
        .hash_password(secret.as_bytes())
        .map(|hash: PasswordHash| hash.to_string())
        .map_err(|e| Error::Hash(e.to_string()))
}
