//! Planned crashes, for tests of the state that a crash leaves behind.
//!
//! A [`CrashPlan`] counts write transactions. At the chosen one the "process" dies: before the
//! transaction (no effect), or right after its commit (full effect, but no notification). From then
//! on every use of the store fails, as for a dead process. The plan counts across all clones of a
//! store, so a scenario can crash at its n-th write.
//!
//! A [`Meter`] counts statements, round trips and work, for tests and metrics of an operation's cost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Error, Tx};

/// Counts the statements of a store's transactions; the default does not count. Repeated work
/// counts each time.
#[derive(Debug, Clone, Default)]
pub struct Meter(Option<Arc<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    statements: AtomicU64,
    round_trips: AtomicU64,
    read_work: AtomicU64,
    write_work: AtomicU64,
    /// The transactions, if they are listed.
    list: Option<Mutex<Vec<Transaction>>>,
}

/// A statement of a listed transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The round trip it was sent with, counted from 1; on SQLite always 1.
    pub round_trip: u64,
    /// Its text, as the service writes it.
    pub sql: String,
}

/// A transaction that a meter lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// True unless it was a read.
    pub is_write: bool,
    /// How often it waited for PostgreSQL.
    pub round_trips: u64,
    /// Its statements, in order.
    pub statements: Vec<Listed>,
}

impl Meter {
    /// A meter that counts from 0.
    pub fn counting() -> Self {
        Self(Some(Arc::default()))
    }

    /// A meter that also keeps every transaction, for tests.
    pub fn listing() -> Self {
        Self(Some(Arc::new(Counts { list: Some(Mutex::default()), ..Counts::default() })))
    }

    /// The transactions since the last call, if the meter lists them.
    pub fn take_transactions(&self) -> Vec<Transaction> {
        let list = self.0.as_ref().and_then(|counts| counts.list.as_ref());
        let taken = |list: &Mutex<Vec<Transaction>>| {
            std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner))
        };
        list.map(taken).unwrap_or_default()
    }

    /// How often transactions waited for an answer from PostgreSQL since the last call; 0 on SQLite.
    /// A statement that is new to its connection is prepared first, which does not count.
    pub fn take_round_trips(&self) -> u64 {
        self.0.as_ref().map_or(0, |counts| counts.round_trips.swap(0, Ordering::SeqCst))
    }

    /// Round trips since the last [`Meter::take_round_trips`], without a reset.
    pub fn round_trips(&self) -> u64 {
        self.0.as_ref().map_or(0, |counts| counts.round_trips.load(Ordering::SeqCst))
    }

    /// Statements since the last call.
    pub fn take(&self) -> u64 {
        self.0.as_ref().map_or(0, |counts| counts.statements.swap(0, Ordering::SeqCst))
    }

    /// Statements since the last [`Meter::take`], without a reset.
    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, |counts| counts.statements.load(Ordering::SeqCst))
    }

    /// The numbers of instructions that SQLite ran since the last call, in reads and in writes;
    /// examining a row costs a few. PostgreSQL does not report them.
    pub fn take_work(&self) -> (u64, u64) {
        self.0.as_ref().map_or((0, 0), |counts| {
            let take = |work: &AtomicU64| work.swap(0, Ordering::SeqCst);
            (take(&counts.read_work), take(&counts.write_work))
        })
    }

    /// Makes a transaction list its statements if this meter lists them.
    pub(crate) fn begin(&self, tx: &mut Tx<'_>) {
        let lists = self.0.as_ref().is_some_and(|counts| counts.list.is_some());
        tx.listed = lists.then(Vec::new);
    }

    /// Counts a transaction, after its work and, if it `commits`, before its commit.
    pub(crate) fn add(&self, tx: &mut Tx<'_>, is_write: bool, commits: bool) {
        let Some(counts) = &self.0 else { return };
        let round_trips = tx.round_trips(commits);
        counts.statements.fetch_add(tx.statements, Ordering::SeqCst);
        counts.round_trips.fetch_add(round_trips, Ordering::SeqCst);
        let work = if is_write { &counts.write_work } else { &counts.read_work };
        work.fetch_add(tx.work, Ordering::SeqCst);
        if let (Some(list), Some(statements)) = (&counts.list, tx.listed.take()) {
            let transaction = Transaction { is_write, round_trips, statements };
            list.lock().unwrap_or_else(PoisonError::into_inner).push(transaction);
        }
    }
}

/// When the process dies relative to the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// The transaction has no effect.
    BeforeCommit,
    /// The transaction is durable, but nothing after it runs.
    AfterCommit,
}

/// When the process dies; the default is never.
#[derive(Debug, Clone, Default)]
pub struct CrashPlan(Option<Arc<Plan>>);

#[derive(Debug)]
struct Plan {
    at: u64,
    death: Death,
    writes: AtomicU64,
    dead: AtomicBool,
}

impl CrashPlan {
    /// A plan to die at write number `at`, counted from 0.
    pub fn at(at: u64, death: Death) -> Self {
        Self(Some(Arc::new(Plan {
            at,
            death,
            writes: AtomicU64::new(0),
            dead: AtomicBool::new(false),
        })))
    }

    /// A plan that counts the writes but never dies.
    pub fn counting() -> Self {
        Self::at(u64::MAX, Death::BeforeCommit)
    }

    /// Dies now, unless it is the default plan.
    pub fn die(&self) {
        if let Some(plan) = &self.0 {
            plan.dead.store(true, Ordering::SeqCst);
        }
    }

    /// Number of writes begun.
    pub fn writes(&self) -> u64 {
        self.0.as_ref().map_or(0, |plan| plan.writes.load(Ordering::SeqCst))
    }

    /// True if the process has died.
    pub fn is_dead(&self) -> bool {
        self.0.as_ref().is_some_and(|plan| plan.dead.load(Ordering::SeqCst))
    }

    pub(crate) fn alive(&self) -> Result<(), Error> {
        if self.is_dead() { Err(Error::Dead) } else { Ok(()) }
    }

    pub(crate) fn next(&self) -> Step {
        Step(
            self.0.as_ref().map(|plan| {
                (Arc::clone(plan), plan.writes.fetch_add(1, Ordering::SeqCst) == plan.at)
            }),
        )
    }
}

#[derive(Clone)]
pub(crate) struct Step(Option<(Arc<Plan>, bool)>);

impl Step {
    pub(crate) fn before(&self) -> Result<(), Error> {
        let Some((plan, chosen)) = &self.0 else { return Ok(()) };
        if *chosen && plan.death == Death::BeforeCommit {
            plan.dead.store(true, Ordering::SeqCst);
        }
        if plan.dead.load(Ordering::SeqCst) { Err(Error::Dead) } else { Ok(()) }
    }

    pub(crate) fn commit(&self) -> Result<(), Error> {
        let Some((plan, chosen)) = &self.0 else { return Ok(()) };
        if !chosen && plan.dead.load(Ordering::SeqCst) { Err(Error::Dead) } else { Ok(()) }
    }

    pub(crate) fn after(&self) -> Result<(), Error> {
        let Some((plan, chosen)) = &self.0 else { return Ok(()) };
        if *chosen && plan.death == Death::AfterCommit {
            plan.dead.store(true, Ordering::SeqCst);
        }
        if plan.dead.load(Ordering::SeqCst) { Err(Error::Dead) } else { Ok(()) }
    }
}
