//! The threads that compute hashes: a few, and nothing else runs on them. However many logins
//! come, the threads of the database stay free.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use argon2::{Algorithm, Argon2, Params, PasswordHash, PasswordHasher, PasswordVerifier, Version};
use tokio::sync::oneshot;

use super::queue::{Crowd, Party, Queue};
use crate::Error;

/// Threads at most: each hash takes 19 MiB while it lasts.
const MOST_THREADS: usize = 8;

/// What is computed.
pub(super) enum Task {
    /// The hash of a secret.
    Hash(String),
    /// Whether a secret fits its hash.
    Verify { secret: String, stored: String },
}

/// What came of it.
pub(super) enum Outcome {
    Hashed(Result<String, Error>),
    Fits(bool),
}

struct Work {
    task: Task,
    /// Hashes computed when it came.
    came: u64,
    answer: oneshot::Sender<Result<Outcome, Crowd>>,
}

/// The threads and what waits for them. They end with the last handle.
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
    over: bool,
}

impl Pool {
    /// Half of the cores, so that the other half answers requests meanwhile.
    pub(super) fn new(params: Params, waiting: usize) -> Result<Self, Error> {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let threads = (cores / 2).clamp(1, MOST_THREADS);
        let shared = Arc::new(Shared {
            state: Mutex::new(State { queue: Queue::new(waiting), over: false }),
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

    /// Computes it when its turn comes.
    pub(super) async fn run(
        &self,
        party: Party,
        likely: bool,
        task: Task,
    ) -> Result<Outcome, Error> {
        let (answer, answered) = oneshot::channel();
        let work = Work { task, came: self.hashes(), answer };
        let left = self.shared.swept().queue.push(party, likely, work);
        if let Some((work, crowd)) = left {
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
            // Its client may have hung up.
            drop(work.answer.send(Err(crowd)));
        }
        self.shared.wake.notify_one();
        match answered.await {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(crowd)) => {
                Err(Error::Busy { own: crowd == Crowd::Own, seconds: self.backlog().as_secs() + 1 })
            }
            Err(_) => Err(Error::Hash("the thread for hashes is gone".into())),
        }
    }

    /// How long what waits now will take.
    fn backlog(&self) -> Duration {
        let waiting = self.shared.lock().queue.len() / self.threads;
        self.typical().saturating_mul(u32::try_from(waiting).unwrap_or(u32::MAX))
    }

    /// How long a hash takes.
    pub(super) fn typical(&self) -> Duration {
        Duration::from_micros(self.shared.micros.load(Ordering::Relaxed))
    }

    /// Hashes computed since the start.
    pub(super) fn hashes(&self) -> u64 {
        self.shared.hashes.load(Ordering::Relaxed)
    }

    /// Hashes computed between the coming of the last login that was right and its turn.
    pub(super) fn passed(&self) -> u64 {
        self.shared.passed.load(Ordering::Relaxed)
    }

    /// Logins sent away since the start.
    pub(super) fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// Logins that wait.
    pub(super) fn waiting(&self) -> usize {
        self.shared.swept().queue.len()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.wake.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, without the logins of clients that hung up.
    fn swept(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        state.queue.sweep(|work| !work.answer.is_closed());
        state
    }

    /// Serves until the end. The first thread begins with a hash that nobody asked for: it tells how
    /// long one takes.
    fn work(&self, first: bool) {
        if first {
            self.compute(Task::Hash("how long does it take".into()));
        }
        while let Some(work) = self.next() {
            if work.answer.is_closed() {
                continue;
            }
            let passed = self.hashes.load(Ordering::Relaxed).saturating_sub(work.came);
            let outcome = self.compute(work.task);
            if let Outcome::Fits(true) = outcome {
                self.passed.store(passed, Ordering::Relaxed);
            }
            self.hashes.fetch_add(1, Ordering::Relaxed);
            // Its client may have hung up meanwhile.
            drop(work.answer.send(Ok(outcome)));
        }
    }

    fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if state.over {
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
