//! The writer thread.
//!
//! ```text
//!   receive one ──► BEGIN IMMEDIATE ──► each job in a savepoint ──► COMMIT ──► hooks, answers
//! ```
//!
//! A job that fails or panics is rolled back to its savepoint; the others are unaffected. Its error is
//! returned after the commit, because it may depend on the others' writes. If the commit itself fails,
//! every other job of the group gets that failure.
//!
//! Some failures (a full disk, an I/O error, no memory) make SQLite roll back the outer transaction
//! despite savepoints. The connection is then in autocommit mode, and a savepoint would open a
//! separate transaction. So the group ends there: the jobs that have run get the failure, and the
//! waiting ones begin a new group.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::MAX_GROUP;
use crate::commits::Commits;
use crate::tx::Hook;
use crate::work::{Answer, Failure, Outcome, Work};
use crate::{Error, Tx};

/// Maximum number of waiting transactions.
const MAX_WAITING: usize = 4096;

/// A transaction that waits for the writer.
pub(super) struct Job {
    work: Work,
    answer: oneshot::Sender<Outcome>,
}

/// A job that has run and waits for the commit of its group.
struct Finish {
    answer: oneshot::Sender<Outcome>,
    /// The answer and the hooks, or the failure of a job that was rolled back.
    ran: Result<(Answer, Vec<Hook>), Failure>,
}

impl Job {
    pub(super) fn new(work: Work, answer: oneshot::Sender<Outcome>) -> Self {
        Self { work, answer }
    }

    /// Runs the job in a savepoint, and rolls it back if it fails. Returns `None` if it panicked.
    fn run(mut self, connection: &Connection) -> Option<Finish> {
        let ended = |answer, ran| Some(Finish { answer, ran });
        if let Err(error) = connection.execute_batch("SAVEPOINT job") {
            return ended(self.answer, Err(Error::from(error).into()));
        }
        let mut tx = Tx::sqlite(connection);
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.work)(&mut tx)));
        let hooks = std::mem::take(&mut tx.hooks);
        // A job whose transaction has failed counts as failed, regardless of its result.
        let outcome = match (outcome, tx.failure()) {
            (Ok(Ok(_)), Some(error)) => Ok(Err(Failure::Store(error))),
            (outcome, _) => outcome,
        };
        match outcome {
            Ok(Ok(value)) => match connection.execute_batch("RELEASE job") {
                Ok(()) => ended(self.answer, Ok((value, hooks))),
                Err(error) => {
                    roll_back(connection);
                    ended(self.answer, Err(Error::from(error).into()))
                }
            },
            Ok(Err(failure)) => {
                roll_back(connection);
                ended(self.answer, Err(failure))
            }
            // The caller sees the closed channel.
            Err(_) => {
                roll_back(connection);
                None
            }
        }
    }

    /// Answers the job with an error, without running it.
    fn refuse(self, error: &Error) {
        drop(self.answer.send(Err(error.again().into())));
    }
}

impl Finish {
    /// Runs the hooks if the commit succeeded, and answers the job. `failure` is the commit's error.
    fn end(self, failure: Option<&Error>) {
        let outcome = match (failure, self.ran) {
            (None, Ok((value, hooks))) => {
                hooks.into_iter().for_each(|hook| hook.run(|_| Vec::new()));
                Ok(value)
            }
            (_, Err(own)) => Err(own),
            (Some(error), Ok(_)) => Err(error.again().into()),
        };
        drop(self.answer.send(outcome));
    }
}

/// Rolls back a job. If that fails, the whole group is rolled back.
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
    pub(super) fn start(connection: Connection, commits: Commits) -> Result<Self, Error> {
        let (queue, jobs) = mpsc::sync_channel::<Job>(MAX_WAITING);
        std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || run(&connection, &jobs, &commits))
            .map_err(|e| Error::Open(format!("cannot start the writer thread: {e}")))?;
        Ok(Self { queue })
    }

    pub(super) fn submit(&self, job: Job) -> Result<(), Error> {
        self.queue.try_send(job).map_err(|e| match e {
            mpsc::TrySendError::Full(_) => {
                Error::Unavailable(format!("{MAX_WAITING} writes are already waiting"))
            }
            mpsc::TrySendError::Disconnected(_) => {
                Error::Unavailable("the writer has stopped".into())
            }
        })
    }
}

fn run(connection: &Connection, jobs: &mpsc::Receiver<Job>, commits: &Commits) {
    while let Ok(first) = jobs.recv() {
        let mut waiting = std::iter::once(first).chain(jobs.try_iter()).take(MAX_GROUP);
        let begun = connection.execute_batch("BEGIN IMMEDIATE");
        if let Err(error) = begun.map_err(Error::from) {
            tracing::error!(%error, "cannot begin a transaction");
            waiting.for_each(|job| job.refuse(&error));
            continue;
        }
        let mut finishes = Vec::new();
        // The first job always runs; the others run while the transaction is open.
        while !connection.is_autocommit()
            && let Some(job) = waiting.next()
        {
            finishes.extend(job.run(connection));
        }
        let in_progress = commits.begin();
        let failure = commit(connection).err();
        for finish in finishes {
            if catch_unwind(AssertUnwindSafe(|| finish.end(failure.as_ref()))).is_err() {
                tracing::error!("a commit hook panicked");
            }
        }
        drop(in_progress);
    }
}

/// Commits the group. After a failure no transaction is open.
fn commit(connection: &Connection) -> Result<(), Error> {
    if connection.is_autocommit() {
        let lost = "a statement of the same group failed, and the database rolled back the whole \
                    group";
        tracing::error!("{lost}");
        return Err(Error::Unavailable(lost.into()));
    }
    let Err(error) = connection.execute_batch("COMMIT").map_err(Error::from) else {
        return Ok(());
    };
    tracing::error!(%error, "a group commit failed; all of its transactions are rolled back");
    if !connection.is_autocommit()
        && let Err(error) = connection.execute_batch("ROLLBACK")
    {
        tracing::error!(%error, "cannot roll back after a failed commit");
    }
    Err(error)
}
