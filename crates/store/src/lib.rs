//! The database behind one small interface: SQLite and PostgreSQL, with the same SQL on both.
//!
//! A unit of work is a *synchronous closure* over a [`Tx`]. It is one transaction, so a crash leaves
//! either all of the work or none of it; and it contains no await, so a caller that gives up cannot
//! interrupt it between two writes. The closure may run again, hence `FnMut`: on PostgreSQL after a serialization
//! failure, on SQLite after the first failed [`Tx::attempt`]. Effects that must happen once belong in
//! [`Tx::on_commit`].
//!
//! The SQL is the common subset: `?1` placeholders (rewritten to `$1` for PostgreSQL), `BIGINT` and
//! `TEXT` columns, `RETURNING`, `ON CONFLICT`. Sums are written `CAST(SUM(x) AS BIGINT)`.
//!
//! This crate must never depend on a table of a service: each service has its own [`Migration`]s
//! and statements.

mod commits;
pub mod copy;
mod error;
mod migrate;
mod options;
mod postgres;
mod rows;
mod sqlite;
mod traffic;
mod tx;
mod url;
mod value;
mod work;

pub mod testing;

use std::collections::BTreeSet;
use std::sync::Arc;

use postgres::{Group, Lane};
use work::{Outcome, Work, erase};

pub use error::{Error, Severity};
pub use migrate::Migration;
pub use options::Options;
pub use postgres::PostgresUrl;
pub use rows::listed;
pub use traffic::Contention;
pub use tx::{Asked, Tx};
pub use url::DatabaseUrl;
pub use value::{Column, Row, Value};
pub use work::Pending;

/// Builds the parameter list of a statement: `params![id, name, None::<i64>]`.
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => { &[$($crate::Value::from($value)),*] };
}

/// Declares named statements and lists them, so that a test can prepare each on both databases.
///
/// ```
/// kilonova_store::statements! {
///     /// One row by key.
///     SETTING = "SELECT value FROM settings WHERE name = ?1";
/// }
/// assert!(STATEMENTS[0].0.ends_with("::SETTING"));
/// ```
///
/// `({})` in a statement stands for a list of parameters, and `({}, {})` for rows; [`listed`] expands them.
#[macro_export]
macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $sql:expr;)*) => {
        $($(#[$doc])* pub const $name: &str = $sql;)*
        /// Every statement of this module, with its name.
        pub const STATEMENTS: &[(&str, &str)] =
            &[$((concat!(module_path!(), "::", stringify!($name)), $name)),*];
    };
}

/// A handle to the database; cheap to clone.
#[derive(Clone)]
pub struct Store {
    backend: Arc<Backend>,
    crash: testing::CrashPlan,
    meter: testing::Meter,
    guard: Option<Guard>,
}

/// A database system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// SQLite, for one controller.
    Sqlite,
    /// PostgreSQL, for any number of controllers.
    Postgres,
}

/// A check at the start of every write transaction of a handle.
type Guard = Arc<dyn Fn(&mut Tx<'_>) -> Result<(), Error> + Send + Sync>;

enum Backend {
    Sqlite(sqlite::Sqlite),
    Postgres(postgres::Postgres),
}

impl Store {
    /// Opens the database with the default limits. Creates the SQLite file if necessary.
    ///
    /// # Errors
    /// [`Error::Open`] with a message for the operator, [`Error::Unavailable`] if the server may
    /// be reachable later.
    pub async fn open(url: &DatabaseUrl) -> Result<Self, Error> {
        Self::open_with(url, &Options::default()).await
    }

    /// Opens the database. Creates the SQLite file if necessary.
    ///
    /// # Errors
    /// Like [`Store::open`].
    pub async fn open_with(url: &DatabaseUrl, options: &Options) -> Result<Self, Error> {
        let backend = match url {
            DatabaseUrl::Sqlite(path) => Backend::Sqlite(sqlite::Sqlite::open(path)?),
            DatabaseUrl::Postgres(url) => {
                Backend::Postgres(postgres::Postgres::open(url, options).await?)
            }
        };
        let (crash, meter) = Default::default();
        Ok(Self { backend: Arc::new(backend), crash, meter, guard: None })
    }

    /// A second handle whose write transactions begin with `guard`. An error of `guard` rolls the transaction back, so
    /// that a process that has lost a lease changes nothing with this handle.
    pub fn guarded(
        &self,
        guard: impl Fn(&mut Tx<'_>) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Self {
        Self { guard: Some(Arc::new(guard)), ..self.clone() }
    }

    /// A second handle with a crash plan; see [`testing`].
    pub fn with_crash_plan(&self, crash: testing::CrashPlan) -> Self {
        Self { crash, ..self.clone() }
    }

    /// A second handle that counts its statements; see [`testing`].
    pub fn with_meter(&self, meter: testing::Meter) -> Self {
        Self { meter, ..self.clone() }
    }

    /// The database system.
    pub fn system(&self) -> System {
        match *self.backend {
            Backend::Sqlite(_) => System::Sqlite,
            Backend::Postgres(_) => System::Postgres,
        }
    }

    /// The counters of shared commits and conflicts of this process; all zero on SQLite.
    pub fn contention(&self) -> Contention {
        match &*self.backend {
            Backend::Sqlite(_) => Contention::default(),
            Backend::Postgres(db) => db.contention(),
        }
    }

    /// Updates the schema. Each migration is one transaction and is recorded. Several programs may do
    /// so at the same time.
    ///
    /// # Errors
    /// [`Error::Migration`] if one fails, or if the database has a contracting migration of a newer
    /// program; [`Error::Copy`] if it is an incomplete copy.
    pub async fn migrate(&self, migrations: &[Migration]) -> Result<(), Error> {
        migrate::run(self, migrations).await
    }

    /// True if no migration was ever applied: no cloud has used the database.
    ///
    /// # Errors
    /// Store errors.
    pub async fn is_new(&self) -> Result<bool, Error> {
        migrate::is_new(self).await
    }

    /// The applied migrations, in order.
    ///
    /// # Errors
    /// [`Error::Copy`] for an incomplete copy ([`copy`]); otherwise store errors, also for a new database,
    /// which has no table of migrations yet.
    pub async fn applied(&self) -> Result<Vec<String>, Error> {
        migrate::applied(self).await
    }

    /// Runs `work` as one transaction. An error or a panic rolls it back.
    ///
    /// # Errors
    /// The error of `work`, or a store error converted to `E`.
    pub fn write<T, E, F>(&self, work: F) -> Pending<'_, T, E>
    where
        F: FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        Pending::new(self.run_write(None, BTreeSet::new(), erase(work)))
    }

    /// Like [`Store::write`], for work that writes the rows with these keys. Transactions of this
    /// process that name a common key are serialized, which avoids retries on PostgreSQL. Missing
    /// or additional keys cost time, never correctness.
    ///
    /// # Errors
    /// Like [`Store::write`].
    pub fn write_on<K, T, E, F>(
        &self,
        rows: impl IntoIterator<Item = K>,
        work: F,
    ) -> Pending<'_, T, E>
    where
        K: ToString,
        F: FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let lanes = rows.into_iter().map(|key| Lane::of(&key.to_string())).collect();
        Pending::new(self.run_write(None, lanes, erase(work)))
    }

    /// Like [`Store::write_on`], for work that always writes the row with the key `row`, and is
    /// often concurrent with other such work. On PostgreSQL the work that waits for the row shares the
    /// next transaction and its commit, up to a limit. Each piece of work has a savepoint: an error rolls back only its
    /// own effects. Work sees the earlier writes of the others in its transaction.
    ///
    /// `order` is the key of the other row that the work locks. The pieces of work in one transaction
    /// run in the order of these keys, so that two transactions for different rows seldom wait for
    /// each other.
    ///
    /// # Errors
    /// Like [`Store::write`].
    pub fn write_together<K, T, E, F>(
        &self,
        row: impl ToString,
        order: impl ToString,
        rows: impl IntoIterator<Item = K>,
        work: F,
    ) -> Pending<'_, T, E>
    where
        K: ToString,
        F: FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let lanes = rows.into_iter().map(|key| Lane::of(&key.to_string())).collect();
        let group = Group { row: Lane::of(&row.to_string()), order: order.to_string() };
        Pending::new(self.run_write(Some(group), lanes, erase(work)))
    }

    /// Runs work as one transaction, or in a transaction that it shares with its group.
    async fn run_write(
        &self,
        group: Option<Group>,
        lanes: BTreeSet<Lane>,
        mut work: Work,
    ) -> Outcome {
        let step = self.crash.next();
        let step_after = step.clone();
        let meter = self.meter.clone();
        let guard = self.guard.clone();
        let guarded: Work = Box::new(move |tx| {
            step.before()?;
            meter.begin(tx);
            if let Some(guard) = &guard {
                guard(tx)?;
            }
            let outcome = work(tx);
            meter.add(tx, true, outcome.is_ok());
            let answer = outcome?;
            step.commit()?;
            Ok(answer)
        });
        let outcome = match &*self.backend {
            Backend::Sqlite(db) => db.write(guarded).await,
            Backend::Postgres(db) => match group {
                Some(group) => db.write_together(group, lanes, guarded).await,
                None => db.write(lanes, guarded).await,
            },
        };
        step_after.after()?;
        outcome
    }

    /// Runs `work` on one consistent snapshot. The database refuses writes, including deferred
    /// ones: deferred writes are sent at the end, and their error becomes the error of the read.
    ///
    /// # Errors
    /// The error of `work`, or a store error converted to `E`.
    pub fn read<T, E, F>(&self, work: F) -> Pending<'_, T, E>
    where
        F: FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        Pending::new(self.run_read(erase(work)))
    }

    /// Waits, for at most a second, until the hooks of every commit of this process that is visible
    /// now have run. Call this before refusing a request on the basis of memory: the database shows
    /// a commit before its hooks have changed memory.
    pub async fn settled(&self) {
        match &*self.backend {
            Backend::Sqlite(db) => db.settled().await,
            Backend::Postgres(db) => db.settled().await,
        }
    }

    async fn run_read(&self, mut work: Work) -> Outcome {
        self.crash.alive()?;
        let meter = self.meter.clone();
        let metered: Work = Box::new(move |tx| {
            meter.begin(tx);
            let outcome = work(tx);
            meter.add(tx, false, outcome.is_ok());
            outcome
        });
        match &*self.backend {
            Backend::Sqlite(db) => db.read(metered).await,
            Backend::Postgres(db) => db.read(metered).await,
        }
    }

    /// Prepares each statement, and returns those that the database refuses, with the reasons.
    pub async fn refused(
        &self,
        statements: &'static [(&'static str, &'static str)],
    ) -> Vec<String> {
        let mut refused = Vec::new();
        for (name, sql) in statements {
            let sql = listed(sql, 3);
            let answer = self.read(move |tx| tx.prepare(&sql)).await;
            if let Err(error) = answer {
                refused.push(format!("{name}: {error}"));
            }
        }
        refused
    }
}
