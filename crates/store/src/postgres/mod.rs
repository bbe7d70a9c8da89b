//! PostgreSQL: a bounded pool, `REPEATABLE READ`, and retries.
//!
//! Under `REPEATABLE READ` two transactions that write the same row cannot both commit; the later
//! one runs again ([`lanes`] makes that rare). The ledger relies on this: a transaction that
//! changes dependent rows (a provider's allocations, a consumer's requests) also writes the row
//! they depend on.
//!
//! Keys are checked against committed rows, not against the snapshot: a transaction that found no
//! row and inserted one can violate a key. After such a failure the transaction runs once more, so
//! that the caller's own check finds the row and reports it.
//!
//! A transaction whose connection is lost before its commit has changed nothing and runs again on
//! another connection. If the connection is lost during the commit, another connection looks up the
//! outcome ([`fate`]), even if the caller has stopped waiting, so that the hooks of a committed
//! transaction always run.

mod connection;
mod dial;
mod fate;
mod group;
mod lanes;
mod line;
mod merge;
mod password;
mod pool;
mod queue;
mod session;
mod tls;
mod turns;
mod types;
mod url;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kilonova_threads::Pool as Threads;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use connection::Connection;
pub(crate) use connection::Failed;
use fate::{Fate, Ticket};
pub(crate) use group::Group;
use group::Groups;
pub(crate) use lanes::Lane;
use lanes::Lanes;
use pool::Pool;
pub(crate) use queue::Wants;
pub(crate) use session::Session;
use turns::Turns;
pub use url::PostgresUrl;

use crate::commits::{Commit, Commits};
use crate::traffic::{Contention, Traffic};
use crate::tx::Hook;
use crate::work::{Answer, Failure, Outcome, Work};
use crate::{Error, Options, Tx};

/// How long a transaction is retried after conflicts before the conflict is returned to the caller
/// as an error.
const CONFLICT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a transaction tries to find a usable connection before it reports that the database is
/// unavailable.
const UNREACHABLE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a statement waits for a lock before its transaction runs again: less than the default `deadlock_timeout` of
/// the server, which would otherwise stop both transactions of a deadlock, and all that wait for them, for a second.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);
/// A transaction that runs again this long after its first run began waits for locks as long as the options allow.
const PATIENT_AFTER: Duration = Duration::from_millis(500);
/// The pause before the first retry; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_micros(200);
/// The maximum pause between retries.
const MAX_PAUSE: Duration = Duration::from_millis(20);
/// The pause after a connection was lost or refused.
const RECONNECT_PAUSE: Duration = Duration::from_millis(200);

/// The database; cheap to clone.
#[derive(Clone)]
pub(crate) struct Postgres {
    connections: Connections,
    lanes: Lanes,
    groups: Groups,
    turns: Turns,
    traffic: Traffic,
    /// How long a transaction waits for its lanes and a permit.
    wait: Duration,
    /// How long a transaction waits until the outcome of its commit is known.
    answer_timeout: Duration,
}

/// The connections and the queue for them; cheap to clone.
#[derive(Clone)]
struct Connections {
    pool: Pool,
    /// One thread per connection.
    threads: Threads,
    /// One permit per connection: unlike waiting for a thread, waiting for a permit has a limit. No
    /// work uses a thread without a permit.
    permits: Arc<Semaphore>,
    commits: Commits,
}

impl Postgres {
    pub(crate) async fn open(url: &PostgresUrl, options: &Options) -> Result<Self, Error> {
        let connections = options.max_pool_size;
        let threads = Threads::new("postgresql", connections)
            .map_err(|e| Error::Open(format!("cannot start the threads of PostgreSQL: {e}")))?;
        let pool = Pool::new(url.clone(), options.clone());
        let mut attempts = 0;
        loop {
            let first = pool.clone();
            let opened = threads.run(move || first.connect().map(|one| first.put(one))).await;
            match opened.map_err(|error| Error::Open(error.to_string()))? {
                Ok(()) => break,
                Err(refused) if !refused.is_temporary => return Err(Error::Open(refused.why)),
                Err(refused) if options.max_retries.is_some_and(|most| attempts >= most) => {
                    return Err(Error::Unavailable(refused.why));
                }
                Err(_) => attempts = attempts.saturating_add(1),
            }
            tokio::time::sleep(options.retry_interval).await;
        }
        let permits = Arc::new(Semaphore::new(connections));
        let (wait, answer_timeout) = (options.pool_timeout, options.answer_timeout);
        let commits = Commits::default();
        let connections = Connections { pool, threads, permits, commits };
        let (groups, turns, traffic) = Default::default();
        Ok(Self { connections, lanes: Lanes::new(), groups, turns, traffic, wait, answer_timeout })
    }

    /// Waits for the lanes and for a permit.
    async fn wait(
        &self,
        lanes: &BTreeSet<Lane>,
    ) -> Result<(Vec<tokio::sync::OwnedMutexGuard<()>>, OwnedSemaphorePermit), Error> {
        let waited = tokio::time::timeout(self.wait, async {
            let held = self.lanes.take(lanes).await;
            self.connections.permit().await.map(|permit| (held, permit))
        });
        match waited.await {
            Ok(ready) => ready,
            Err(_) => Err(self.wait_timed_out()),
        }
    }

    /// The error of a transaction that has waited too long.
    fn wait_timed_out(&self) -> Error {
        Error::Unavailable(format!("no connection became free within {:?}", self.wait))
    }

    pub(crate) async fn write(&self, lanes: BTreeSet<Lane>, work: Work) -> Outcome {
        self.run(Kind::Write(None), lanes, work).await
    }

    pub(crate) async fn read(&self, work: Work) -> Outcome {
        self.run(Kind::Read, BTreeSet::new(), work).await
    }

    /// This process's counters of shared commits and conflicts.
    pub(crate) fn contention(&self) -> Contention {
        self.traffic.read()
    }

    /// Waits for the hooks of the commits in progress.
    pub(crate) async fn settled(&self) {
        self.connections.commits.settled().await;
    }

    async fn run(&self, kind: Kind, mut lanes: BTreeSet<Lane>, mut work: Work) -> Outcome {
        let begun = Instant::now();
        let mut pause = FIRST_PAUSE;
        let mut doubted = false;
        let mut first_run = None;
        loop {
            let (held, permit) = self.wait(&lanes).await?;
            // The waits in this process do not count: a busy row would make every transaction patient at once.
            let runs_for = first_run.get_or_insert_with(Instant::now).elapsed();
            let connections = self.connections.clone();
            let begin = Begin {
                read_only: kind == Kind::Read,
                turn: kind.row().filter(|row| self.turns.are_taken(*row)),
                gives_up_locks: kind != Kind::Read && runs_for < PATIENT_AFTER,
            };
            if begin.turn.is_some() {
                self.traffic.takes_turn();
            }
            let run = move || {
                let _permit = permit;
                let ended = match connections.pool.take() {
                    Ok(connection) => once(&connections, connection, begin, &mut work),
                    Err(error) => Ended::Lost(error.into()),
                };
                (ended, work)
            };
            let (ended, same_work) = self.connections.threads.run(run).await.map_err(|error| {
                Error::Other(format!("the transaction was rolled back: {error}"))
            })?;
            work = same_work;
            drop(held);
            let (error, conflict, limit) = match ended {
                Ended::Done(answer) => return answer,
                Ended::Conflict(error, conflict) => {
                    self.traffic.conflict(1);
                    self.turns.conflict(kind.row(), conflict);
                    (error, conflict, CONFLICT_TIMEOUT)
                }
                Ended::Doubtful(error) if doubted => return Err(error),
                Ended::Doubtful(error) => {
                    doubted = true;
                    (error, None, CONFLICT_TIMEOUT)
                }
                Ended::Lost(error) => {
                    pause = RECONNECT_PAUSE;
                    (error, None, UNREACHABLE_TIMEOUT)
                }
                Ended::Unknown(unknown) => {
                    let Unknown { error, value, fate } = *unknown;
                    let settled = tokio::time::timeout(self.answer_timeout, fate).await;
                    match settled.ok().and_then(Result::ok).flatten() {
                        Some(Fate::Committed) => return Ok(value),
                        Some(Fate::RolledBack) => (error.into(), None, UNREACHABLE_TIMEOUT),
                        None => return Err(outcome_unknown(&error).into()),
                    }
                }
            };
            if begun.elapsed() > limit {
                return Err(error);
            }
            lanes.extend(conflict);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }
}

impl Connections {
    /// Waits for the permit to use a connection.
    async fn permit(&self) -> Result<OwnedSemaphorePermit, Error> {
        let closed = |_| Error::Unavailable("the connection pool is closed".into());
        Arc::clone(&self.permits).acquire_owned().await.map_err(closed)
    }

    /// Looks up the fate of a transaction in a separate task, and runs its hooks if it was
    /// committed, even if the caller has stopped waiting.
    fn settle(
        &self,
        ticket: Ticket,
        hooks: Vec<Hook>,
        in_progress: Option<Commit>,
    ) -> JoinHandle<Option<Fate>> {
        let connections = self.clone();
        tokio::spawn(async move {
            let fate = connections.look_up(ticket).await;
            tracing::warn!(
                ?fate,
                "the connection was lost during a commit; its outcome was looked up"
            );
            if fate == Some(Fate::Committed) {
                hooks.into_iter().for_each(|hook| hook.run(|_| Vec::new()));
            }
            drop(in_progress);
            fate
        })
    }

    /// Looks up the fate of a transaction until the server answers.
    async fn look_up(&self, ticket: Ticket) -> Option<Fate> {
        loop {
            let (pool, lost, permit) =
                (self.pool.clone(), ticket.clone(), self.permit().await.ok()?);
            let looked = self.threads.run(move || {
                let _permit = permit;
                let mut connection = pool.take()?;
                let fate = connection.fate(&lost);
                if matches!(fate, Err(Error::Unavailable(_))) {
                    connection.abandon();
                }
                pool.put(connection);
                fate
            });
            match looked.await {
                Ok(Ok(fate)) => return Some(fate),
                Ok(Err(error)) if !ticket.is_recent() => {
                    tracing::error!(%error, "could not determine the outcome of a commit");
                    return None;
                }
                Ok(Err(error)) => tracing::debug!(%error, "cannot look up a commit yet"),
                Err(error) => {
                    tracing::error!(%error, "cannot look up a commit");
                    return None;
                }
            }
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
    }
}

/// The kind of a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    /// With the row that it always writes, if it is work of a group.
    Write(Option<Lane>),
}

impl Kind {
    /// The row of its group.
    fn row(self) -> Option<Lane> {
        match self {
            Self::Read => None,
            Self::Write(row) => row,
        }
    }
}

/// How a transaction begins.
#[derive(Clone, Copy)]
struct Begin {
    read_only: bool,
    /// The row at which it waits for its turn.
    turn: Option<Lane>,
    /// True if it must run again after a statement has waited [`LOCK_TIMEOUT`] for a lock. Otherwise its statements
    /// wait as long as the options allow.
    gives_up_locks: bool,
}

/// A transaction whose connection was lost during its commit.
struct Unknown {
    error: Error,
    value: Answer,
    /// The outcome, once it has been looked up.
    fate: JoinHandle<Option<Fate>>,
}

enum Ended {
    Done(Outcome),
    /// The commit was not answered.
    Unknown(Box<Unknown>),
    /// The transaction must run again; with the lane of the conflicting row, if known.
    Conflict(Failure, Option<Lane>),
    /// The transaction failed after a key violation: a newer snapshot may show the reason.
    Doubtful(Failure),
    /// There was no connection, or it was lost before the commit: nothing was changed.
    Lost(Failure),
}

/// Runs the transaction once, on a thread that may block. A usable connection returns to the pool; a
/// panic of the work drops it, which rolls the transaction back.
fn once(
    connections: &Connections,
    mut connection: Connection,
    Begin { read_only, turn, gives_up_locks }: Begin,
    work: &mut Work,
) -> Ended {
    let pool = &connections.pool;
    if !read_only && let Err(error) = connection.ready() {
        let lost = matches!(error, Error::Unavailable(_));
        if lost {
            connection.abandon();
        }
        pool.put(connection);
        return if lost { Ended::Lost(error.into()) } else { Ended::Done(Err(error.into())) };
    }
    if let Some(row) = turn {
        connection.take_turn(row);
    }
    connection.begin(read_only);
    if gives_up_locks {
        connection.give_up_locks(LOCK_TIMEOUT);
    }
    let mut tx = Tx::postgres(Session::new(&mut connection));
    let outcome = work(&mut tx);
    // Work that ignores an error of its transaction has failed too.
    let outcome = match (outcome, tx.failure()) {
        (Ok(_), Some(error)) => Err(error.into()),
        (outcome, _) => outcome,
    };
    let (retry, doubt, conflict, lost) =
        (tx.retry, tx.doubt, tx.conflict, tx.rolled_back.is_some());
    let (answers, hooks) = (tx.hooked(), std::mem::take(&mut tx.hooks));
    drop(tx);
    // A read changes nothing, so no caller needs to wait for its hooks.
    let in_progress = (!read_only).then(|| connections.commits.begin());
    let ended = match outcome {
        Ok(value) => match connection.commit(&answers) {
            Ok(()) => {
                hooks.into_iter().for_each(|hook| hook.run(|number| connection.committed(number)));
                Ended::Done(Ok(value))
            }
            Err(Failed { error: error @ Error::Retry(_), key, .. }) => {
                Ended::Conflict(error.into(), key.as_ref().and_then(Lane::of_key))
            }
            Err(Failed { error: error @ (Error::Unique(_) | Error::Reference(_)), .. }) => {
                Ended::Doubtful(error.into())
            }
            Err(Failed { error: error @ Error::Unavailable(_), is_refused, .. }) => {
                connection.abandon();
                if is_refused || !connection.is_marked() {
                    Ended::Lost(error.into())
                } else {
                    let fate = connections.settle(connection.ticket(), hooks, in_progress);
                    Ended::Unknown(Box::new(Unknown { error, value, fate }))
                }
            }
            // The server has rolled back.
            Err(Failed { error, .. }) => Ended::Done(Err(error.into())),
        },
        Err(error) if lost || !connection.is_usable() => {
            connection.abandon();
            Ended::Lost(error)
        }
        Err(error) => {
            connection.roll_back();
            if retry {
                Ended::Conflict(error, conflict)
            } else if doubt {
                Ended::Doubtful(error)
            } else {
                Ended::Done(Err(error))
            }
        }
    };
    pool.put(connection);
    ended
}

/// The error of a transaction whose connection was lost during the commit, and whose outcome cannot be
/// looked up.
fn outcome_unknown(error: &Error) -> Error {
    Error::Unavailable(format!("it is not known whether a commit succeeded: {error}"))
}

/// The text of an error and its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
