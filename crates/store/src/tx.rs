//! A transaction as the services see it.

use crate::postgres::Lane;
use crate::{Error, Row, Value, postgres, sqlite};

/// What runs after a successful commit.
pub(crate) type Hook = Box<dyn FnOnce() + Send>;

/// An open transaction. It ends with the closure that was given it.
pub struct Tx<'a> {
    inner: Inner<'a>,
    /// Set when a statement failed in a way that asks for the whole transaction to be run again.
    pub(crate) retry: bool,
    /// Set when a key was violated: by a row, perhaps, that is younger than this snapshot.
    pub(crate) doubt: bool,
    /// Where it met another transaction, if it did.
    pub(crate) met: Option<Lane>,
    pub(crate) hooks: Vec<Hook>,
    /// Set when the database has rolled the whole transaction back by itself: nothing that is run
    /// now would be undone with the rest.
    pub(crate) lost: Option<Error>,
    /// Statements run so far.
    pub(crate) statements: u64,
    /// Instructions that they took, on SQLite.
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

    /// Refuses to go on in a transaction that is gone.
    fn alive(&self) -> Result<(), Error> {
        self.lost.as_ref().map_or(Ok(()), |lost| Err(lost.again()))
    }

    /// Notes whether a failure took the transaction with it. Reads have one as well.
    fn lose<T>(&mut self, answer: &Result<T, Error>) {
        if let (Err(error), Inner::Sqlite(connection)) = (answer, &self.inner)
            && connection.is_autocommit()
        {
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

    /// Runs a statement and says how many rows it changed.
    ///
    /// # Errors
    /// [`Error::Unique`] and [`Error::Reference`] for the keys, otherwise [`Error::Other`]. On
    /// PostgreSQL the transaction is then over: return the error.
    pub fn execute(&mut self, sql: &str, params: &[Value]) -> Result<u64, Error> {
        self.alive()?;
        let answer = match &self.inner {
            Inner::Sqlite(connection) => sqlite::execute(connection, sql, params, &mut self.work),
            Inner::Postgres(session) => session.execute(sql, params),
        };
        self.note(params, answer)
    }

    /// Runs a statement and returns its rows.
    ///
    /// # Errors
    /// As [`Tx::execute`].
    pub fn rows(&mut self, sql: &str, params: &[Value]) -> Result<Vec<Row>, Error> {
        self.alive()?;
        let answer = match &self.inner {
            Inner::Sqlite(connection) => sqlite::rows(connection, sql, params, &mut self.work),
            Inner::Postgres(session) => session.rows(sql, params),
        };
        self.note(params, answer)
    }

    /// Runs a statement and returns its first row, if there is one.
    ///
    /// # Errors
    /// As [`Tx::execute`].
    pub fn row(&mut self, sql: &str, params: &[Value]) -> Result<Option<Row>, Error> {
        Ok(self.rows(sql, params)?.into_iter().next())
    }

    /// Runs `work` so that an error from it undoes what it did and nothing else: the transaction goes
    /// on, on PostgreSQL too. For "try this candidate, or the next".
    ///
    /// # Errors
    /// What `work` returns, or a store error turned into `E`.
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
        self.batch("SAVEPOINT attempt")?;
        Ok(self.hooks.len())
    }

    fn end_attempt(&mut self, hooks: usize, is_ok: bool) -> Result<(), Error> {
        if is_ok {
            self.batch("RELEASE SAVEPOINT attempt")?;
        } else if !self.retry && self.lost.is_none() {
            self.hooks.truncate(hooks);
            self.batch("ROLLBACK TO SAVEPOINT attempt")?;
            self.batch("RELEASE SAVEPOINT attempt")?;
        }
        Ok(())
    }

    /// Runs `hook` once the transaction is durable, and never otherwise. On SQLite hooks run in
    /// commit order; on PostgreSQL two transactions' hooks may run in either order, so what they
    /// carry must be absolute and versioned.
    pub fn on_commit(&mut self, hook: impl FnOnce() + Send + 'static) {
        self.hooks.push(Box::new(hook));
    }

    /// Whether this is PostgreSQL; for the change log's horizon and for nothing else.
    pub fn is_postgres(&self) -> bool {
        matches!(self.inner, Inner::Postgres(_))
    }

    pub(crate) fn prepare(&mut self, sql: &str) -> Result<(), Error> {
        match &self.inner {
            Inner::Sqlite(connection) => Ok(connection.prepare_cached(sql).map(|_| ())?),
            Inner::Postgres(session) => session.prepare(sql),
        }
    }

    pub(crate) fn batch(&mut self, sql: &str) -> Result<(), Error> {
        self.alive()?;
        let answer = match &self.inner {
            Inner::Sqlite(connection) => connection.execute_batch(sql).map_err(Error::from),
            Inner::Postgres(session) => session.batch(sql),
        };
        self.lose(&answer);
        answer
    }
}
