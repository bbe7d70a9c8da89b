//! A transaction as the services see it.

use crate::postgres::Lane;
use crate::{Error, Row, Value, postgres, sqlite};

/// Runs after a successful commit.
pub(crate) type Hook = Box<dyn FnOnce() + Send>;

/// An open transaction. It ends with its closure.
pub struct Tx<'a> {
    inner: Inner<'a>,
    /// Set if a statement failed in a way that requires the whole transaction to run again.
    pub(crate) retry: bool,
    /// Set if a key was violated, possibly by a row newer than this snapshot.
    pub(crate) doubt: bool,
    /// The lane of the conflicting row, if there was a conflict.
    pub(crate) met: Option<Lane>,
    pub(crate) hooks: Vec<Hook>,
    /// Set if the database has rolled back the whole transaction itself: later statements would not
    /// be part of it.
    pub(crate) lost: Option<Error>,
    /// Number of statements run.
    pub(crate) statements: u64,
    /// Number of their instructions, on SQLite.
    pub(crate) work: u64,
}

enum Inner<'a> {
    Sqlite(&'a rusqlite::Connection),
    Postgres(postgres::Session<'a>),
}

impl<'a> Tx<'a> {
    pub(crate) fn sqlite(connection: &'a rusqlite::Connection) -> Self {
        Self::over(Inner::Sqlite(connection))
    }

    pub(crate) fn postgres(session: postgres::Session<'a>) -> Self {
        Self::over(Inner::Postgres(session))
    }

    fn over(inner: Inner<'a>) -> Self {
        let (retry, doubt, met, lost, hooks, statements, work) = Default::default();
        Self { inner, retry, doubt, met, lost, hooks, statements, work }
    }

    /// Refuses to continue in a lost transaction.
    fn alive(&self) -> Result<(), Error> {
        self.lost.as_ref().map_or(Ok(()), |lost| Err(lost.again()))
    }

    /// Records whether a failure lost the transaction. This concerns reads too.
    fn lose<T>(&mut self, answer: &Result<T, Error>) {
        let Err(error) = answer else { return };
        let lost = match &self.inner {
            Inner::Sqlite(connection) => connection.is_autocommit(),
            Inner::Postgres(_) => matches!(error, Error::Unavailable(_)),
        };
        if lost {
            self.lost = Some(error.again());
        }
    }

    /// Statements that write a row have its key as their first parameter.
    fn note<T>(&mut self, params: &[Value], answer: Result<T, Error>) -> Result<T, Error> {
        self.statements += 1;
        self.lose(&answer);
        self.doubt |= matches!(answer, Err(Error::Unique(_) | Error::Reference(_)));
        if matches!(answer, Err(Error::Retry(_))) {
            self.retry = true;
            self.met = match params.first() {
                Some(Value::Text(key)) => Some(Lane::of(key)),
                _ => None,
            };
        }
        answer
    }

    /// Runs a statement and returns the number of changed rows.
    ///
    /// # Errors
    /// [`Error::Unique`] and [`Error::Reference`] for keys, otherwise [`Error::Other`]. On
    /// PostgreSQL the transaction has then failed: return the error.
    pub fn execute(&mut self, sql: &str, params: &[Value]) -> Result<u64, Error> {
        self.alive()?;
        let answer = match &mut self.inner {
            Inner::Sqlite(connection) => sqlite::execute(connection, sql, params, &mut self.work),
            Inner::Postgres(session) => session.execute(sql, params),
        };
        self.note(params, answer)
    }

    /// Runs a statement and returns its rows.
    ///
    /// # Errors
    /// Like [`Tx::execute`].
    pub fn rows(&mut self, sql: &str, params: &[Value]) -> Result<Vec<Row>, Error> {
        self.alive()?;
        let answer = match &mut self.inner {
            Inner::Sqlite(connection) => sqlite::rows(connection, sql, params, &mut self.work),
            Inner::Postgres(session) => session.rows(sql, params),
        };
        self.note(params, answer)
    }

    /// Runs a statement and returns its first row, if any.
    ///
    /// # Errors
    /// Like [`Tx::execute`].
    pub fn row(&mut self, sql: &str, params: &[Value]) -> Result<Option<Row>, Error> {
        Ok(self.rows(sql, params)?.into_iter().next())
    }

    /// Runs `work` in a savepoint: an error rolls back its effects only, and the transaction
    /// continues, on PostgreSQL too. For attempts such as one candidate after the other.
    ///
    /// # Errors
    /// The error of `work`, or a store error converted to `E`.
    pub fn attempt<T, E: From<Error>>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let hooks = self.begin_attempt()?;
        let answer = work(self);
        self.end_attempt(hooks, answer.is_ok())?;
        answer
    }

    /// Returns the number of hooks that a rollback keeps.
    fn begin_attempt(&mut self) -> Result<usize, Error> {
        match &mut self.inner {
            Inner::Sqlite(_) => self.batch("SAVEPOINT attempt")?,
            Inner::Postgres(session) => session.savepoint("attempt"),
        }
        Ok(self.hooks.len())
    }

    fn end_attempt(&mut self, hooks: usize, is_ok: bool) -> Result<(), Error> {
        if is_ok {
            match &mut self.inner {
                Inner::Sqlite(_) => self.batch("RELEASE SAVEPOINT attempt")?,
                Inner::Postgres(session) => session.release("attempt"),
            }
        } else if !self.retry && self.lost.is_none() {
            self.hooks.truncate(hooks);
            match &mut self.inner {
                Inner::Sqlite(_) => {
                    self.batch("ROLLBACK TO SAVEPOINT attempt; RELEASE SAVEPOINT attempt")?;
                }
                Inner::Postgres(session) => session.restore("attempt"),
            }
        }
        Ok(())
    }

    /// Runs `hook` after the commit, and never otherwise. On SQLite hooks run in commit order. On
    /// PostgreSQL the hooks of two transactions may run in either order, so their effects must be
    /// absolute and versioned.
    pub fn on_commit(&mut self, hook: impl FnOnce() + Send + 'static) {
        self.hooks.push(Box::new(hook));
    }

    /// True if this is PostgreSQL. Only for the change log's horizon.
    pub fn is_postgres(&self) -> bool {
        matches!(self.inner, Inner::Postgres(_))
    }

    pub(crate) fn prepare(&mut self, sql: &str) -> Result<(), Error> {
        match &mut self.inner {
            Inner::Sqlite(connection) => Ok(connection.prepare_cached(sql).map(|_| ())?),
            Inner::Postgres(session) => session.prepare(sql),
        }
    }

    pub(crate) fn batch(&mut self, sql: &str) -> Result<(), Error> {
        self.alive()?;
        let answer = match &mut self.inner {
            Inner::Sqlite(connection) => connection.execute_batch(sql).map_err(Error::from),
            Inner::Postgres(session) => session.batch(sql),
        };
        self.lose(&answer);
        answer
    }
}
