//! Planned crashes, for tests of the state that a crash leaves.
//!
//! A [`CrashPlan`] counts write transactions. At the chosen one the "process" dies: before its
//! transaction (no effect), or right after the commit (full effect, but nobody is notified). From
//! then on every use of the store fails, as for a dead process. The plan counts across all clones
//! of a store, so a scenario can name its n-th write.
//!
//! A [`Meter`] counts statements and their work, for tests and metrics of an operation's cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::{Error, Tx};

/// Counts the statements of a store's transactions; the default does not count. Repeated work
/// counts each time.
#[derive(Debug, Clone, Default)]
pub struct Meter(Option<Arc<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    statements: AtomicU64,
    read_work: AtomicU64,
    write_work: AtomicU64,
}

impl Meter {
    /// A meter that counts from 0.
    pub fn counting() -> Self {
        Self(Some(Arc::default()))
    }

    /// Statements since the last call.
    pub fn take(&self) -> u64 {
        self.0.as_ref().map_or(0, |counts| counts.statements.swap(0, Ordering::SeqCst))
    }

    /// Statements since the last [`Meter::take`], without a reset.
    pub fn count(&self) -> u64 {
        self.0.as_ref().map_or(0, |counts| counts.statements.load(Ordering::SeqCst))
    }

    /// SQLite's instructions since the last call, in reads and in writes; examining a row costs a
    /// few. PostgreSQL does not report them.
    pub fn take_work(&self) -> (u64, u64) {
        self.0.as_ref().map_or((0, 0), |counts| {
            let take = |work: &AtomicU64| work.swap(0, Ordering::SeqCst);
            (take(&counts.read_work), take(&counts.write_work))
        })
    }

    pub(crate) fn add(&self, tx: &Tx<'_>, is_write: bool) {
        if let Some(counts) = &self.0 {
            counts.statements.fetch_add(tx.statements, Ordering::SeqCst);
            let work = if is_write { &counts.write_work } else { &counts.read_work };
            work.fetch_add(tx.work, Ordering::SeqCst);
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
    /// Dies at write number `at`, counted from 0.
    pub fn at(at: u64, death: Death) -> Self {
        Self(Some(Arc::new(Plan {
            at,
            death,
            writes: AtomicU64::new(0),
            dead: AtomicBool::new(false),
        })))
    }

    /// Never dies, but counts.
    pub fn counting() -> Self {
        Self::at(u64::MAX, Death::BeforeCommit)
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
