//! The writer thread.
//!
//! ```text
//!   receive one ──► BEGIN IMMEDIATE ──► jobs, one after the other ──► COMMIT ──► hooks, answers
//! ```
//!
//! A job that fails or panics is undone; the others are unaffected. Its error is returned after the commit, because it
//! may depend on the others' writes. If the commit itself fails, every other job of the group gets that failure.
//!
//! A job with writes of others before it runs in a savepoint. The first one needs none: the transaction is rolled
//! back, and a new one begins for the next job. Savepoints cost a copy of each page that is written, so attempts
//! ([`Tx::attempt`]) have none either at first. A job whose attempt fails is undone and runs again with savepoints.
//!
//! Some failures (a full disk, an I/O error, no memory) make SQLite roll back the outer transaction
//! despite savepoints. The connection is then in autocommit mode, and a savepoint would open a
//! separate transaction. So the group ends there: the jobs that have run get the failure, and the
//! waiting ones begin a new group.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{MAX_GROUP, run};
use crate::commits::Commits;
use crate::tx::{Attempts, Hook};
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

/// How a job ended without effect.
enum End {
    Failed(Failure),
    Panicked,
    /// An attempt without a savepoint failed.
    NeedsSavepoints,
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Failed(error.into())
    }
}

/// The means that undo a job that fails.
#[derive(Clone, Copy)]
enum Scope {
    /// The transaction contains no other writes.
    Transaction,
    /// A savepoint.
    Savepoint,
}

impl Scope {
    fn enter(self, connection: &Connection) -> Result<(), Error> {
        match self {
            // A job that runs again has ended the transaction.
            Self::Transaction if connection.is_autocommit() => begin(connection),
            Self::Transaction => Ok(()),
            // It would begin a transaction of its own.
            Self::Savepoint if connection.is_autocommit() => Err(lost()),
            Self::Savepoint => run(connection, "SAVEPOINT job"),
        }
    }

    fn leave(self, connection: &Connection) -> Result<(), Error> {
        match self {
            Self::Transaction => Ok(()),
            Self::Savepoint => run(connection, "RELEASE job"),
        }
    }

    /// Undoes the writes since [`Scope::enter`]. If that fails, the whole group is rolled back.
    fn undo(self, connection: &Connection) -> Result<(), Error> {
        if connection.is_autocommit() {
            return Ok(());
        }
        let undone = match self {
            Self::Transaction => run(connection, "ROLLBACK"),
            Self::Savepoint => {
                run(connection, "ROLLBACK TO job").and_then(|()| run(connection, "RELEASE job"))
            }
        };
        undone.inspect_err(|error| {
            tracing::error!(%error, "cannot undo a transaction that failed");
            drop(run(connection, "ROLLBACK"));
        })
    }
}

impl Job {
    pub(super) fn new(work: Work, answer: oneshot::Sender<Outcome>) -> Self {
        Self { work, answer }
    }

    /// Runs the job, and undoes it if it fails. Returns `None` if it panicked.
    fn run(mut self, connection: &Connection, scope: Scope) -> Option<Finish> {
        let ran = match self.attempt(connection, scope, Attempts::Bare) {
            Err(End::NeedsSavepoints) => self.attempt(connection, scope, Attempts::Savepoints),
            ended => ended,
        };
        let ran = match ran {
            Ok(ran) => Ok(ran),
            Err(End::Failed(failure)) => Err(failure),
            // The caller sees the closed channel.
            Err(End::Panicked) => return None,
            Err(End::NeedsSavepoints) => {
                let again = "a transaction with savepoints asked for savepoints";
                Err(Error::Other(again.into()).into())
            }
        };
        Some(Finish { answer: self.answer, ran })
    }

    fn attempt(
        &mut self,
        connection: &Connection,
        scope: Scope,
        attempts: Attempts,
    ) -> Result<(Answer, Vec<Hook>), End> {
        scope.enter(connection)?;
        let mut tx = Tx::sqlite(connection, attempts);
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.work)(&mut tx)));
        // A job whose transaction has failed counts as failed, regardless of its result.
        let end = match (outcome, tx.failure()) {
            (Err(_), _) => End::Panicked,
            (Ok(_), Some(_)) if tx.needs_savepoints => End::NeedsSavepoints,
            (Ok(Err(failure)), _) => End::Failed(failure),
            (Ok(Ok(_)), Some(error)) => error.into(),
            (Ok(Ok(value)), None) => match scope.leave(connection) {
                Ok(()) => return Ok((value, std::mem::take(&mut tx.hooks))),
                Err(error) => error.into(),
            },
        };
        match (scope.undo(connection), end) {
            (Err(error), End::NeedsSavepoints) => Err(error.into()),
            (_, end) => Err(end),
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

/// Begins a transaction. Rolls back one whose roll-back failed before.
fn begin(connection: &Connection) -> Result<(), Error> {
    if !connection.is_autocommit() {
        run(connection, "ROLLBACK")?;
    }
    run(connection, "BEGIN IMMEDIATE")
}

/// The failure of work whose group the database has rolled back.
fn lost() -> Error {
    Error::Unavailable(
        "a statement of the same group failed, and the database rolled back the whole group".into(),
    )
}

pub(super) struct Writer {
    queue: mpsc::SyncSender<Job>,
}

impl Writer {
    pub(super) fn start(connection: Connection, commits: Commits) -> Result<Self, Error> {
        let (queue, jobs) = mpsc::sync_channel::<Job>(MAX_WAITING);
        std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || serve(&connection, &jobs, &commits))
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

fn serve(connection: &Connection, jobs: &mpsc::Receiver<Job>, commits: &Commits) {
    while let Ok(first) = jobs.recv() {
        let mut waiting = std::iter::once(first).chain(jobs.try_iter()).take(MAX_GROUP);
        let mut group = Group::default();
        while !group.is_lost(connection)
            && let Some(job) = waiting.next()
        {
            if !group.awaits_commit
                && let Err(error) = begin(connection)
            {
                tracing::error!(%error, "cannot begin a transaction");
                std::iter::once(job).chain(&mut waiting).for_each(|job| job.refuse(&error));
                break;
            }
            group.run(job, connection);
        }
        let in_progress = commits.begin();
        let failure = group.commit(connection).err();
        for finish in group.finishes {
            if catch_unwind(AssertUnwindSafe(|| finish.end(failure.as_ref()))).is_err() {
                tracing::error!("a commit hook panicked");
            }
        }
        drop(in_progress);
    }
}

/// The jobs that have run since the last commit.
#[derive(Default)]
struct Group {
    finishes: Vec<Finish>,
    /// True if one of them waits for the commit.
    awaits_commit: bool,
}

impl Group {
    /// True if the database has rolled back writes that wait for the commit.
    fn is_lost(&self, connection: &Connection) -> bool {
        self.awaits_commit && connection.is_autocommit()
    }

    fn run(&mut self, job: Job, connection: &Connection) {
        let scope = if self.awaits_commit { Scope::Savepoint } else { Scope::Transaction };
        if let Some(finish) = job.run(connection, scope) {
            self.awaits_commit |= finish.ran.is_ok();
            self.finishes.push(finish);
        }
    }

    /// Commits the writes. After a failure no transaction is open.
    fn commit(&self, connection: &Connection) -> Result<(), Error> {
        if self.awaits_commit { commit(connection) } else { Ok(()) }
    }
}

/// Commits the group. After a failure no transaction is open.
fn commit(connection: &Connection) -> Result<(), Error> {
    if connection.is_autocommit() {
        let error = lost();
        tracing::error!("{error}");
        return Err(error);
    }
    let Err(error) = run(connection, "COMMIT") else {
        return Ok(());
    };
    tracing::error!(%error, "a group commit failed; all of its transactions are rolled back");
    if !connection.is_autocommit()
        && let Err(error) = run(connection, "ROLLBACK")
    {
        tracing::error!(%error, "cannot roll back after a failed commit");
    }
    Err(error)
}
