//! The writer thread.
//!
//! ```text
//!   receive one ──► BEGIN IMMEDIATE ──► each waiting job in a savepoint ──► COMMIT ──► hooks, answers
//! ```
//!
//! A job that fails or panics is rolled back to its savepoint; the others are not touched. When the
//! commit itself fails, every job of the group is answered with that failure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::GROUP;
use crate::tx::Hook;
use crate::{Error, Tx};

/// Ends a job once the group's fate is known: `None` for committed.
type Finish = Box<dyn FnOnce(Option<&Error>) + Send>;

/// Runs a transaction; `None` when it came to nothing and has been answered.
type Run = Box<dyn FnOnce(&Connection) -> Option<Finish> + Send>;

/// A transaction waiting for the writer: run it, then tell it how the group went.
pub(super) struct Job(Run);

impl Job {
    pub(super) fn new<T, E, F>(mut work: F, answer: oneshot::Sender<Result<T, E>>) -> Self
    where
        F: FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        Self(Box::new(move |connection| {
            if let Err(error) = connection.execute_batch("SAVEPOINT job") {
                drop(answer.send(Err(Error::from(error).into())));
                return None;
            }
            let mut tx = Tx::sqlite(connection);
            let outcome = catch_unwind(AssertUnwindSafe(|| work(&mut tx)));
            let hooks = std::mem::take(&mut tx.hooks);
            match outcome {
                Ok(Ok(value)) => match connection.execute_batch("RELEASE job") {
                    Ok(()) => Some(finish(hooks, answer, value)),
                    Err(error) => {
                        drop(answer.send(Err(Error::from(error).into())));
                        None
                    }
                },
                Ok(Err(error)) => {
                    roll_back(connection);
                    drop(answer.send(Err(error)));
                    None
                }
                Err(_) => {
                    roll_back(connection);
                    None
                }
            }
        }))
    }
}

fn finish<T, E>(hooks: Vec<Hook>, answer: oneshot::Sender<Result<T, E>>, value: T) -> Finish
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    Box::new(move |failure| match failure {
        None => {
            hooks.into_iter().for_each(|hook| hook());
            drop(answer.send(Ok(value)));
        }
        Some(error) => drop(answer.send(Err(Error::Other(error.to_string()).into()))),
    })
}

fn roll_back(connection: &Connection) {
    if let Err(error) = connection.execute_batch("ROLLBACK TO job; RELEASE job") {
        tracing::error!(%error, "cannot roll a transaction back to its savepoint");
    }
}

pub(super) struct Writer {
    queue: mpsc::SyncSender<Job>,
}

impl Writer {
    pub(super) fn start(connection: Connection) -> Result<Self, Error> {
        let (queue, jobs) = mpsc::sync_channel::<Job>(4096);
        std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || run(&connection, &jobs))
            .map_err(|e| Error::Open(format!("cannot start the writer thread: {e}")))?;
        Ok(Self { queue })
    }

    pub(super) fn submit(&self, job: Job) -> Result<(), Error> {
        self.queue.try_send(job).map_err(|e| match e {
            mpsc::TrySendError::Full(_) => Error::Other("too many writes are waiting".into()),
            mpsc::TrySendError::Disconnected(_) => Error::Other("the writer has stopped".into()),
        })
    }
}

fn run(connection: &Connection, jobs: &mpsc::Receiver<Job>) {
    while let Ok(first) = jobs.recv() {
        if let Err(error) = connection.execute_batch("BEGIN IMMEDIATE") {
            tracing::error!(%error, "cannot begin a transaction");
            continue;
        }
        let mut finishes = Vec::new();
        finishes.extend(first.0(connection));
        for _ in 1..GROUP {
            let Ok(job) = jobs.try_recv() else { break };
            finishes.extend(job.0(connection));
        }
        let failure = connection.execute_batch("COMMIT").err().map(Error::from);
        if let Some(error) = &failure {
            tracing::error!(%error, "a group commit failed; all of its transactions are undone");
            drop(connection.execute_batch("ROLLBACK"));
        }
        for finish in finishes {
            if catch_unwind(AssertUnwindSafe(|| finish(failure.as_ref()))).is_err() {
                tracing::error!("a commit hook panicked");
            }
        }
    }
}
