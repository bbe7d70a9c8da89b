//! Group commit: transactions of this process that write one row share a commit.
//!
//! Under `REPEATABLE READ` two transactions that write one row cannot overlap: each begins after
//! the commit of the previous one, which waits for the disk. The work that has arrived meanwhile
//! runs together: in one transaction, with a savepoint per job and one commit.
//!
//! ```text
//!   alone ──► the row's lane ──► a transaction of its own
//!   several ──► the lanes of all ──► BEGIN ──► each in a savepoint ──► COMMIT ──► hooks, answers
//!                                                 │ a statement fails, or the connection is lost
//!                                                 └──► roll back; each runs in a transaction of its own
//! ```
//!
//! A group locks the rows of all its work, so it must not wait for transactions that wait for it: every group runs its
//! work in the order of the rows that the work will lock, and is rolled back when a statement has waited for a lock
//! for [`super::LOCK_TIMEOUT`]. It does not join the queue of that row, in which all its work would wait.
//!
//! No work waits for a group to form: work that arrives alone begins immediately. A job that returns
//! an error is rolled back to its savepoint; the others are unaffected. The error is returned after
//! the commit, because it may depend on the others' writes. This module must never answer a job with
//! the failure of another job's statement.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use super::connection::{Connection, Failed};
use super::fate::Fate;
use super::{Connections, FIRST_PAUSE, Kind, Lane, MAX_PAUSE, Postgres, Session};
use crate::tx::Hook;
use crate::work::{Outcome, Work};
use crate::{Error, Tx};

/// Maximum number of transactions that share a commit. Each sets a few savepoints, and the server caches at most 64
/// subtransactions of a session in shared memory.
const MAX_GROUP: usize = 16;
/// Maximum number of transactions that wait for one row.
const MAX_WAITING: usize = 4096;
/// How many times a group with conflicts runs before its transactions run separately.
const MAX_GROUP_RUNS: usize = 4;

/// The group that work belongs to.
pub(crate) struct Group {
    /// The row that all work of the group writes.
    pub row: Lane,
    /// The key by which the work of a group is sorted.
    pub order: String,
}

/// Work that waits for its transaction.
pub(super) struct Job {
    number: u64,
    order: String,
    lanes: BTreeSet<Lane>,
    work: Work,
    answer: oneshot::Sender<Outcome>,
}

/// The waiting jobs, by row; cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Groups(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    last: u64,
    /// A row has an entry while a [`Lead`] runs its transactions.
    rows: BTreeMap<Lane, VecDeque<Job>>,
}

/// The right to run the transactions of one row.
struct Lead {
    groups: Groups,
    row: Lane,
    /// True once no job waits: the next job to arrive gets a new lead.
    is_over: bool,
}

impl Drop for Lead {
    /// A lead that ends early closes the channels of the waiting jobs.
    fn drop(&mut self) {
        if !self.is_over {
            drop(self.groups.lock().rows.remove(&self.row));
        }
    }
}

impl Groups {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds work, and returns its number. The first work for a row also gets the lead.
    fn join(
        &self,
        group: Group,
        lanes: BTreeSet<Lane>,
        work: Work,
        answer: oneshot::Sender<Outcome>,
    ) -> Result<(u64, Option<Lead>), Error> {
        let Group { row, order } = group;
        let mut waiting = self.lock();
        waiting.last += 1;
        let number = waiting.last;
        let leads = !waiting.rows.contains_key(&row);
        let jobs = waiting.rows.entry(row).or_default();
        if jobs.len() >= MAX_WAITING {
            let why = format!("{MAX_WAITING} transactions already wait for the same row");
            return Err(Error::Unavailable(why));
        }
        jobs.push_back(Job { number, order, lanes, work, answer });
        Ok((number, leads.then(|| Lead { groups: self.clone(), row, is_over: false })))
    }

    /// Removes work that has not begun. Returns false if it has begun.
    fn withdraw(&self, row: Lane, number: u64) -> bool {
        let mut waiting = self.lock();
        let Some(jobs) = waiting.rows.get_mut(&row) else { return false };
        let before = jobs.len();
        jobs.retain(|job| job.number != number);
        jobs.len() < before
    }
}

impl Lead {
    /// Takes the jobs of the next transaction, except those whose callers no longer wait. If there are none, the lead
    /// is over.
    fn next(&mut self) -> Vec<Job> {
        let mut waiting = self.groups.lock();
        let mut taken = Vec::new();
        if let Some(jobs) = waiting.rows.get_mut(&self.row) {
            while taken.len() < MAX_GROUP
                && let Some(job) = jobs.pop_front()
            {
                if !job.answer.is_closed() {
                    taken.push(job);
                }
            }
        }
        if taken.is_empty() {
            // Under the same lock, so that work that arrives later finds no entry.
            waiting.rows.remove(&self.row);
            self.is_over = true;
        }
        taken.sort_by(|one, other| one.order.cmp(&other.order));
        taken
    }
}

/// How a group's transaction ended.
enum Ended {
    /// Committed or rolled back as a whole, and answered.
    Done,
    /// A conflict, with the lane of the conflicting row if known: the group runs again.
    Conflict(Vec<Job>, Option<Lane>),
    /// A statement has failed, or waited too long, or the connection is lost: nothing was changed.
    Apart(Vec<Job>),
    /// The commit was not answered.
    Unknown(Vec<Job>, Vec<Outcome>, Error, JoinHandle<Option<Fate>>),
}

impl Postgres {
    /// Runs work together with the waiting work of its group.
    pub(crate) async fn write_together(
        &self,
        group: Group,
        mut lanes: BTreeSet<Lane>,
        work: Work,
    ) -> Outcome {
        let row = group.row;
        lanes.insert(row);
        let (answer, mut answered) = oneshot::channel();
        let (number, lead) = self.groups.join(group, lanes, work, answer)?;
        if let Some(lead) = lead {
            // A separate task, because the first caller may stop waiting before the others.
            tokio::spawn(self.clone().lead(lead));
        }
        let answer = match tokio::time::timeout(self.wait, &mut answered).await {
            Err(_) if self.groups.withdraw(row, number) => {
                return Err(self.wait_timed_out().into());
            }
            Err(_) => answered.await,
            Ok(answer) => answer,
        };
        answer.unwrap_or_else(|_| {
            Err(Error::Other("the transaction panicked and was rolled back".into()).into())
        })
    }

    /// Runs the transactions of a row until none waits.
    async fn lead(self, mut lead: Lead) {
        loop {
            match <[Job; 1]>::try_from(lead.next()) {
                Ok([job]) => self.run_alone(lead.row, job).await,
                Err(jobs) if jobs.is_empty() => return,
                Err(jobs) => self.run_together(lead.row, jobs).await,
            }
        }
    }

    async fn run_alone(&self, row: Lane, job: Job) {
        let Job { lanes, work, answer, .. } = job;
        drop(answer.send(self.run(Kind::Write(Some(row)), lanes, work).await));
    }

    async fn run_together(&self, row: Lane, mut jobs: Vec<Job>) {
        let mut lanes: BTreeSet<Lane> =
            jobs.iter().flat_map(|job| job.lanes.iter().copied()).collect();
        let mut pause = FIRST_PAUSE;
        for _ in 0..MAX_GROUP_RUNS {
            let (held, permit) = match self.wait(&lanes).await {
                Ok(ready) => ready,
                Err(error) => return refuse(jobs, &error),
            };
            let connections = self.connections.clone();
            let (number, in_turn) =
                (jobs.len(), Some(row).filter(|row| self.turns.are_taken(*row)));
            if in_turn.is_some() {
                self.traffic.takes_turn();
            }
            let run = move || {
                let _permit = permit;
                match connections.pool.take() {
                    Ok(connection) => together(&connections, connection, in_turn, jobs),
                    Err(_) => Ended::Apart(jobs),
                }
            };
            let ended = self.connections.threads.run(run).await;
            drop(held);
            jobs = match ended {
                Ok(Ended::Done) => return self.traffic.shared(number),
                Ok(Ended::Conflict(same, conflict)) => {
                    self.traffic.conflict(same.len());
                    self.turns.conflict(Some(row), conflict);
                    tracing::debug!(
                        transactions = same.len(),
                        "a group runs again after a conflict"
                    );
                    lanes.extend(conflict);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_PAUSE);
                    same
                }
                Ok(Ended::Apart(same)) => {
                    jobs = same;
                    break;
                }
                Ok(Ended::Unknown(same, outcomes, error, fate)) => {
                    match tokio::time::timeout(self.answer_timeout, fate).await {
                        Ok(Ok(Some(Fate::Committed))) => {
                            self.traffic.shared(number);
                            return answer(same, outcomes);
                        }
                        Ok(Ok(Some(Fate::RolledBack))) => {
                            jobs = same;
                            break;
                        }
                        Ok(Ok(None) | Err(_)) | Err(_) => {
                            return refuse(same, &super::outcome_unknown(&error));
                        }
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "a group of transactions was rolled back");
                    return;
                }
            };
        }
        self.traffic.split();
        tracing::debug!(transactions = jobs.len(), "a group of transactions runs one by one");
        // Concurrently: jobs that need the same lane wait for each other, and an outage delays all
        // of them only as long as it would delay one.
        let mut apart = JoinSet::new();
        for job in jobs {
            let own = self.clone();
            apart.spawn(async move { own.run_alone(row, job).await });
        }
        while apart.join_next().await.is_some() {}
    }
}

/// Answers each job with its outcome.
fn answer(jobs: Vec<Job>, outcomes: Vec<Outcome>) {
    for (job, outcome) in jobs.into_iter().zip(outcomes) {
        drop(job.answer.send(outcome));
    }
}

/// Answers each job with an error.
fn refuse(jobs: Vec<Job>, error: &Error) {
    for job in jobs {
        drop(job.answer.send(Err(error.again().into())));
    }
}

/// The state of a group's transaction after its work.
enum Ran {
    /// It may be committed; with the outcomes, the hooks, and the answers that the hooks need.
    Completed(Vec<Outcome>, Vec<Hook>, Vec<u64>),
    Conflict(Option<Lane>),
    Failed,
    Lost,
    /// The work at this position panicked.
    Panicked(usize),
}

/// Runs each job in a savepoint of the connection's transaction.
fn run_each(connection: &mut Connection, jobs: &mut [Job]) -> Ran {
    let (mut outcomes, mut hooks, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    for (position, job) in jobs.iter_mut().enumerate() {
        connection.savepoint();
        let mut tx = Tx::postgres(Session::new(connection));
        tx.shares_commit = position > 0;
        let outcome = catch_unwind(AssertUnwindSafe(|| (job.work)(&mut tx)));
        let Ok(outcome) = outcome else { return Ran::Panicked(position) };
        // The statement may have failed only because the work ran in a group.
        let has_ended = tx.failure().is_some() || (tx.has_failed && outcome.is_err());
        let (retry, conflict, lost) = (tx.retry, tx.conflict, tx.rolled_back.is_some());
        if outcome.is_ok() {
            answers.extend(tx.hooked());
            hooks.append(&mut tx.hooks);
        }
        drop(tx);
        if lost || !connection.is_usable() {
            return Ran::Lost;
        } else if connection.gave_up_lock() {
            return Ran::Failed;
        } else if retry {
            return Ran::Conflict(conflict);
        } else if has_ended || connection.has_failed() {
            return Ran::Failed;
        } else if outcome.is_ok() {
            connection.release();
        } else {
            connection.restore();
        }
        outcomes.push(outcome);
    }
    Ran::Completed(outcomes, hooks, answers)
}

/// Runs a group in one transaction, on a thread that may block.
fn together(
    connections: &Connections,
    mut connection: Connection,
    turn: Option<Lane>,
    mut jobs: Vec<Job>,
) -> Ended {
    let pool = &connections.pool;
    if connection.ready().is_err() {
        connection.abandon();
        pool.put(connection);
        return Ended::Apart(jobs);
    }
    if let Some(row) = turn {
        connection.take_turn(row);
    }
    connection.begin(false);
    connection.give_up_locks(super::LOCK_TIMEOUT);
    let (outcomes, hooks, answers) = match run_each(&mut connection, &mut jobs) {
        Ran::Completed(outcomes, hooks, answers) => (outcomes, hooks, answers),
        Ran::Conflict(conflict) => {
            connection.roll_back();
            pool.put(connection);
            return Ended::Conflict(jobs, conflict);
        }
        Ran::Failed => {
            connection.roll_back();
            pool.put(connection);
            return Ended::Apart(jobs);
        }
        Ran::Lost => {
            connection.abandon();
            pool.put(connection);
            return Ended::Apart(jobs);
        }
        Ran::Panicked(position) => {
            // Dropping the connection rolls back, and dropping the job closes its channel.
            drop((connection, jobs.remove(position)));
            return Ended::Apart(jobs);
        }
    };
    if outcomes.iter().all(Result::is_err) {
        connection.roll_back();
        pool.put(connection);
        answer(jobs, outcomes);
        return Ended::Done;
    }
    let in_progress = connections.commits.begin();
    let ended = match connection.commit(&answers) {
        Ok(()) => {
            for hook in hooks {
                let run = || hook.run(|number| connection.committed(number));
                if catch_unwind(AssertUnwindSafe(run)).is_err() {
                    tracing::error!("a commit hook panicked");
                }
            }
            answer(jobs, outcomes);
            Ended::Done
        }
        Err(_) if connection.gave_up_lock() => Ended::Apart(jobs),
        Err(Failed { error: Error::Retry(_), key, .. }) => {
            Ended::Conflict(jobs, key.as_ref().and_then(Lane::of_key))
        }
        Err(Failed { error: error @ Error::Unavailable(_), is_refused, .. }) => {
            connection.abandon();
            if is_refused || !connection.is_marked() {
                Ended::Apart(jobs)
            } else {
                let fate = connections.settle(connection.ticket(), hooks, Some(in_progress));
                pool.put(connection);
                return Ended::Unknown(jobs, outcomes, error, fate);
            }
        }
        Err(_) => Ended::Apart(jobs),
    };
    pool.put(connection);
    ended
}
