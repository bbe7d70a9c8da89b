//! The writer thread.
//!
//! ```text
//!   receive one ──► BEGIN IMMEDIATE ──► each waiting job in a savepoint ──► COMMIT ──► hooks, answers
//! ```
//!
//! A job that fails or panics is rolled back to its savepoint; the others are not touched. When the
//! commit itself fails, every job of the group is answered with that failure.
//!
//! Some failures (a full disk, an I/O error, no memory) make SQLite roll the outer transaction back
//! by itself, whatever savepoints there are. The connection is in autocommit mode then, and a
//! savepoint would open a transaction of its own. So the group ends there: the jobs that had run are
//! answered with the failure, and those that still wait begin a new group.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::GROUP;
use crate::tx::Hook;
use crate::{Error, Tx};

/// Transactions that wait at most.
const QUEUE: usize = 4096;

/// Ends a job once the group's fate is known: `None` for committed.
type Finish = Box<dyn FnOnce(Option<&Error>) + Send>;

/// Runs a transaction, or answers it with a failure; `None` when it came to nothing and has been
/// answered.
type Run = Box<dyn FnOnce(Result<&Connection, &Error>) -> Option<Finish> + Send>;

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
            let begun = connection.map_err(Error::again).and_then(|connection| {
                connection.execute_batch("SAVEPOINT job")?;
                Ok(connection)
            });
            let connection = match begun {
                Ok(connection) => connection,
                Err(error) => {
                    drop(answer.send(Err(error.into())));
                    return None;
                }
            };
            let mut tx = Tx::sqlite(connection);
            let outcome = catch_unwind(AssertUnwindSafe(|| work(&mut tx)));
            let hooks = std::mem::take(&mut tx.hooks);
            // A job whose transaction is gone has failed, whatever it says itself.
            let ended = match (outcome, tx.lost.take()) {
                (Ok(Ok(_)), Some(lost)) => Ok(Err(lost.into())),
                (outcome, _) => outcome,
            };
            match ended {
                Ok(Ok(value)) => match connection.execute_batch("RELEASE job") {
                    Ok(()) => return Some(finish(hooks, answer, value)),
                    Err(error) => {
                        roll_back(connection);
                        drop(answer.send(Err(Error::from(error).into())));
                    }
                },
                Ok(Err(error)) => {
                    roll_back(connection);
                    drop(answer.send(Err(error)));
                }
                Err(_) => roll_back(connection),
            }
            None
        }))
    }

    fn run(self, connection: &Connection) -> Option<Finish> {
        (self.0)(Ok(connection))
    }

    /// Answers it without having run it.
    fn refuse(self, error: &Error) {
        (self.0)(Err(error));
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
        Some(error) => drop(answer.send(Err(error.again().into()))),
    })
}

/// Undoes a job. When even that fails nothing of the group is kept.
fn roll_back(connection: &Connection) {
    if connection.is_autocommit() {
        return;
    }
    if let Err(error) = connection.execute_batch("ROLLBACK TO job; RELEASE job") {
        tracing::error!(%error, "cannot roll a transaction back to its savepoint");
        drop(connection.execute_batch("ROLLBACK"));
    }
}

pub(super) struct Writer {
    queue: mpsc::SyncSender<Job>,
}

impl Writer {
    pub(super) fn start(connection: Connection) -> Result<Self, Error> {
        let (queue, jobs) = mpsc::sync_channel::<Job>(QUEUE);
        std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || run(&connection, &jobs))
            .map_err(|e| Error::Open(format!("cannot start the writer thread: {e}")))?;
        Ok(Self { queue })
    }

    pub(super) fn submit(&self, job: Job) -> Result<(), Error> {
        self.queue.try_send(job).map_err(|e| match e {
            mpsc::TrySendError::Full(_) => {
                Error::Unavailable(format!("{QUEUE} writes are waiting already"))
            }
            mpsc::TrySendError::Disconnected(_) => {
                Error::Unavailable("the writer has stopped".into())
            }
        })
    }
}

fn run(connection: &Connection, jobs: &mpsc::Receiver<Job>) {
    while let Ok(first) = jobs.recv() {
        let mut waiting = std::iter::once(first).chain(jobs.try_iter()).take(GROUP);
        let begun = connection.execute_batch("BEGIN IMMEDIATE");
        if let Err(error) = begun.map_err(Error::from) {
            tracing::error!(%error, "cannot begin a transaction");
            waiting.for_each(|job| job.refuse(&error));
            continue;
        }
        let mut finishes = Vec::new();
        // The first job is always run; the rest while the transaction is there.
        while !connection.is_autocommit()
            && let Some(job) = waiting.next()
        {
            finishes.extend(job.run(connection));
        }
        let failure = commit(connection).err();
        for finish in finishes {
            if catch_unwind(AssertUnwindSafe(|| finish(failure.as_ref()))).is_err() {
                tracing::error!("a commit hook panicked");
            }
        }
    }
}

/// Commits the group; after a failure there is no transaction.
fn commit(connection: &Connection) -> Result<(), Error> {
    if connection.is_autocommit() {
        let lost = "a statement of the same group failed, and the database undid the whole group";
        tracing::error!("{lost}");
        return Err(Error::Unavailable(lost.into()));
    }
    let Err(error) = connection.execute_batch("COMMIT").map_err(Error::from) else {
        return Ok(());
    };
    tracing::error!(%error, "a group commit failed; all of its transactions are undone");
    if !connection.is_autocommit()
        && let Err(error) = connection.execute_batch("ROLLBACK")
    {
        tracing::error!(%error, "cannot roll back after a failed commit");
    }
    Err(error)
}
