//! A transaction as the services see it.
//!
//! On PostgreSQL each wait for an answer is a round trip. [`Tx::execute`] and [`Tx::rows`] wait. [`Tx::defer`] and
//! [`Tx::ask`] do not: their statements are sent, in order, with the next one whose answer is needed, or with the
//! commit. SQLite runs every statement immediately.
//!
//! A conflict, a lost connection, or the failure of a statement that belongs to no open savepoint
//! ends the transaction: it runs no further statement and cannot commit, regardless of how its work
//! handles the error.

use jiff::Timestamp;

use crate::postgres::{Failed, Lane, Wants};
use crate::testing::Listed;
use crate::{Error, Row, Value, postgres, rows, sqlite};

/// The current time, not the start time of the transaction.
const PG_CLOCK: &str =
    "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) AS now";

/// A function that runs after a successful commit, with the rows that it needs.
pub(crate) struct Hook {
    /// The number of the statement that returns the rows, on PostgreSQL.
    asked: Option<u64>,
    run: Box<dyn FnOnce(Vec<Row>) + Send>,
}

impl Hook {
    /// Runs the hook. `answer` returns the rows of the statement with a number.
    pub(crate) fn run(self, answer: impl FnOnce(u64) -> Vec<Row>) {
        (self.run)(self.asked.map(answer).unwrap_or_default());
    }
}

/// An announced read.
struct Expected {
    sql: String,
    params: Vec<Value>,
    number: u64,
}

/// The form of attempts ([`Tx::attempt`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempts {
    /// Without savepoints, on SQLite only. An attempt that fails ends the transaction and sets [`Tx::needs_savepoints`].
    Bare,
    /// In savepoints.
    Savepoints,
}

/// An open transaction. It ends with its closure.
pub struct Tx<'a> {
    inner: Inner<'a>,
    /// Set if a statement failed in a way that requires the whole transaction to run again.
    pub(crate) retry: bool,
    /// Set if a key was violated, possibly by a row newer than this snapshot.
    pub(crate) doubt: bool,
    /// Set if a statement failed, even if an attempt has undone the failure.
    pub(crate) has_failed: bool,
    /// The lane of the conflicting row, if there was a conflict.
    pub(crate) conflict: Option<Lane>,
    pub(crate) hooks: Vec<Hook>,
    /// Set if the database has rolled back the whole transaction itself: later statements would not
    /// be part of it.
    pub(crate) rolled_back: Option<Error>,
    /// Set if the transaction has failed although the database has not rolled it back: after a conflict,
    /// or if no open savepoint can undo the failure.
    must_roll_back: Option<Error>,
    /// True if other work of the same transaction counts the round trip of the commit.
    pub(crate) shares_commit: bool,
    /// The round trips of the transaction before this work, on PostgreSQL.
    round_trips_before: u64,
    /// The form of attempts.
    attempts: Attempts,
    /// Set if an attempt without a savepoint has failed: the work must run again, with savepoints.
    pub(crate) needs_savepoints: bool,
    /// Number of open attempts.
    depth: usize,
    /// The announced reads, with no write after them.
    expected: Vec<Expected>,
    /// The rows of the statements that were asked, on SQLite.
    answers: Vec<Vec<Row>>,
    /// The statements with their round trips, if a meter lists them.
    pub(crate) listed: Option<Vec<Listed>>,
    /// Number of statements run.
    pub(crate) statements: u64,
    /// Number of instructions that these statements ran, on SQLite.
    pub(crate) work: u64,
}

/// A statement whose answer [`Tx::answer`] returns. Its transaction may run it later.
#[derive(Debug)]
#[must_use = "a statement without a needed answer is deferred"]
pub struct Asked(u64);

enum Inner<'a> {
    Sqlite(&'a rusqlite::Connection),
    Postgres(postgres::Session<'a>),
}

impl<'a> Tx<'a> {
    pub(crate) fn sqlite(connection: &'a rusqlite::Connection, attempts: Attempts) -> Self {
        Self { attempts, ..Self::over(Inner::Sqlite(connection)) }
    }

    pub(crate) fn postgres(session: postgres::Session<'a>) -> Self {
        let round_trips_before = session.round_trips();
        Self { round_trips_before, ..Self::over(Inner::Postgres(session)) }
    }

    fn over(inner: Inner<'a>) -> Self {
        Self {
            inner,
            retry: false,
            doubt: false,
            has_failed: false,
            conflict: None,
            hooks: Vec::new(),
            rolled_back: None,
            must_roll_back: None,
            shares_commit: false,
            round_trips_before: 0,
            attempts: Attempts::Savepoints,
            needs_savepoints: false,
            depth: 0,
            expected: Vec::new(),
            answers: Vec::new(),
            listed: None,
            statements: 0,
            work: 0,
        }
    }

    /// Why the whole transaction has failed, if it has.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.rolled_back.as_ref().or(self.must_roll_back.as_ref()).map(Error::again)
    }

    /// Refuses to continue in a transaction that has failed.
    fn check_active(&self) -> Result<(), Error> {
        self.failure().map_or(Ok(()), Err)
    }

    /// Counts a statement before it runs. A write invalidates the announced reads.
    fn count(&mut self, sql: &str) -> Result<(), Error> {
        self.check_active()?;
        self.statements += 1;
        if !is_read(sql) {
            self.expected.clear();
        }
        let round_trip = self.round_trips(false) + 1;
        if let Some(listed) = &mut self.listed {
            listed.push(Listed { round_trip, sql: sql.to_owned() });
        }
        Ok(())
    }

    /// Round trips of this work so far, on PostgreSQL, including that of the commit if it `commits`. The first work of
    /// a group counts the commit for all.
    pub(crate) fn round_trips(&self, commits: bool) -> u64 {
        let all = match &self.inner {
            Inner::Sqlite(_) => 0,
            Inner::Postgres(session) if commits && !self.shares_commit => {
                session.round_trips_committed(&self.hooked())
            }
            Inner::Postgres(session) => session.round_trips(),
        };
        all.saturating_sub(self.round_trips_before)
    }

    /// The numbers of the answers that hooks wait for, on PostgreSQL.
    pub(crate) fn hooked(&self) -> Vec<u64> {
        self.hooks.iter().filter_map(|hook| hook.asked).collect()
    }

    /// Records whether a failure ended the transaction in the database. This applies to reads too.
    fn record_rollback<T>(&mut self, answer: &Result<T, Error>) {
        let Err(error) = answer else { return };
        let is_rolled_back = match &self.inner {
            Inner::Sqlite(connection) => connection.is_autocommit(),
            Inner::Postgres(_) => matches!(error, Error::Unavailable(_)),
        };
        if is_rolled_back {
            self.rolled_back = Some(error.again());
        }
    }

    /// Records the consequence of a failure for the transaction.
    fn note<T>(&mut self, answer: Result<T, Failed>) -> Result<T, Error> {
        let failed = match answer {
            Ok(answer) => return Ok(answer),
            Err(failed) => failed,
        };
        let Failed { error, key, is_final, .. } = failed;
        self.has_failed = true;
        // No savepoint helps after a conflict: the snapshot stays the same.
        if is_final || matches!(error, Error::Retry(_)) {
            self.must_roll_back = Some(error.again());
        }
        self.doubt |= matches!(error, Error::Unique(_) | Error::Reference(_));
        if matches!(error, Error::Retry(_)) {
            self.retry = true;
            self.conflict = key.as_ref().and_then(Lane::of_key);
        }
        let answer = Err(error);
        self.record_rollback(&answer);
        answer
    }

    /// Runs a statement and returns the number of changed rows.
    ///
    /// # Errors
    /// [`Error::Unique`] and [`Error::Reference`] for violated keys, and the database's other errors;
    /// also the errors of statements that were deferred before. On PostgreSQL the transaction has then
    /// failed: return the error.
    pub fn execute(&mut self, sql: &str, params: &[Value]) -> Result<u64, Error> {
        self.count(sql)?;
        let answer = match &mut self.inner {
            Inner::Sqlite(connection) => {
                sqlite::execute(connection, sql, params, &mut self.work).map_err(Failed::from)
            }
            Inner::Postgres(session) => {
                let number = session.ask(sql, params, Wants::Changed, changes(sql));
                session.changed(number)
            }
        };
        self.note(answer)
    }

    /// Runs a statement whose number of changed rows does not matter. On PostgreSQL it is sent with
    /// the next statement whose answer is needed, or with the commit, and its error is returned there.
    /// If the caller handles an error, such as a violated key, use [`Tx::execute`].
    ///
    /// # Errors
    /// On SQLite those of [`Tx::execute`]. On PostgreSQL those of earlier statements.
    pub fn defer(&mut self, sql: &str, params: &[Value]) -> Result<(), Error> {
        self.count(sql)?;
        let answer = match &mut self.inner {
            Inner::Sqlite(connection) => {
                let changed = sqlite::execute(connection, sql, params, &mut self.work);
                changed.map(drop).map_err(Failed::from)
            }
            Inner::Postgres(session) => {
                session.ask(sql, params, Wants::Nothing, changes(sql));
                Ok(())
            }
        };
        self.note(answer)
    }

    /// Runs a statement whose rows [`Tx::answer`] returns. On PostgreSQL it is sent with the next
    /// statement whose answer is needed, so several such statements take one round trip.
    ///
    /// # Errors
    /// Like [`Tx::defer`].
    pub fn ask(&mut self, sql: &str, params: &[Value]) -> Result<Asked, Error> {
        self.count(sql)?;
        let number = match &mut self.inner {
            Inner::Sqlite(connection) => sqlite::rows(connection, sql, params, &mut self.work)
                .map_err(Failed::from)
                .map(|rows| {
                    self.answers.push(rows);
                    self.answers.len() as u64
                }),
            Inner::Postgres(session) => Ok(session.ask(sql, params, Wants::Rows, changes(sql))),
        };
        self.note(number).map(Asked)
    }

    /// Like [`Tx::defer`], for a statement with one placeholder row `({}, {}, …)`, which is repeated for each of
    /// `rows`: a few statements write all of them.
    ///
    /// # Errors
    /// Like [`Tx::defer`].
    pub fn defer_rows<const WIDTH: usize>(
        &mut self,
        sql: &'static str,
        rows: &[[Value; WIDTH]],
    ) -> Result<(), Error> {
        let mut statements = rows::of_rows(sql, rows).into_iter();
        statements.try_for_each(|(sql, params)| self.defer(&sql, params))
    }

    /// Like [`Tx::ask`], for a statement with one placeholder row, as in [`Tx::defer_rows`]. [`Tx::answers`] returns
    /// the rows of the answers.
    ///
    /// # Errors
    /// Like [`Tx::ask`].
    pub fn ask_rows<const WIDTH: usize>(
        &mut self,
        sql: &'static str,
        rows: &[[Value; WIDTH]],
    ) -> Result<Vec<Asked>, Error> {
        let statements = rows::of_rows(sql, rows).into_iter();
        statements.map(|(sql, params)| self.ask(&sql, params)).collect()
    }

    /// Like [`Tx::ask`], for a statement with a list `({})` and no other parameter. The values may repeat, and
    /// there may be many. [`Tx::answers`] returns the rows.
    ///
    /// # Errors
    /// Like [`Tx::ask`].
    pub fn ask_list(&mut self, sql: &'static str, list: &[Value]) -> Result<Vec<Asked>, Error> {
        let statements = rows::of_list(sql, list).into_iter();
        statements.map(|(sql, params)| self.ask(&sql, &params)).collect()
    }

    /// The rows of several statements that were asked before in this transaction.
    ///
    /// # Errors
    /// Like [`Tx::answer`].
    pub fn answers(&mut self, asked: Vec<Asked>) -> Result<Vec<Row>, Error> {
        let mut rows = Vec::new();
        for one in asked {
            rows.extend(self.answer(one)?);
        }
        Ok(rows)
    }

    /// The rows of a statement that was asked before in this transaction.
    ///
    /// # Errors
    /// Those of the statement, and of those that were deferred or asked before it.
    pub fn answer(&mut self, asked: Asked) -> Result<Vec<Row>, Error> {
        self.check_active()?;
        let answer = match &mut self.inner {
            Inner::Sqlite(_) => Ok(self.answered(&asked)),
            Inner::Postgres(session) => session.rows(asked.0),
        };
        self.note(answer)
    }

    /// The rows of a statement that SQLite has run.
    fn answered(&mut self, asked: &Asked) -> Vec<Row> {
        let position = usize::try_from(asked.0).ok().and_then(|number| number.checked_sub(1));
        let answer = position.and_then(|position| self.answers.get_mut(position));
        answer.map(std::mem::take).unwrap_or_default()
    }

    /// The first row of a statement that was asked before in this transaction, if any.
    ///
    /// # Errors
    /// Like [`Tx::answer`].
    pub fn answer_row(&mut self, asked: Asked) -> Result<Option<Row>, Error> {
        Ok(self.answer(asked)?.into_iter().next())
    }

    /// Announces a `SELECT`. On PostgreSQL it is sent with the next statement whose answer is needed. A later call of
    /// [`Tx::rows`], [`Tx::row`] or [`Tx::visit`] with the same text and parameters uses its answer, without another
    /// round trip. A write before such a call cancels the announcement.
    ///
    /// # Errors
    /// Those of earlier statements.
    pub fn expect(&mut self, sql: &str, params: &[Value]) -> Result<(), Error> {
        if matches!(self.inner, Inner::Sqlite(_)) || !is_read(sql) {
            return Ok(());
        }
        let Asked(number) = self.ask(sql, params)?;
        self.expected.push(Expected { sql: sql.to_owned(), params: params.to_vec(), number });
        Ok(())
    }

    /// The announced read with this text and these parameters.
    fn announced(&mut self, sql: &str, params: &[Value]) -> Option<Asked> {
        let is_it = |expected: &Expected| expected.sql == sql && expected.params == params;
        let position = self.expected.iter().position(is_it)?;
        Some(Asked(self.expected.swap_remove(position).number))
    }

    /// Runs a statement and returns its rows.
    ///
    /// # Errors
    /// Like [`Tx::execute`].
    pub fn rows(&mut self, sql: &str, params: &[Value]) -> Result<Vec<Row>, Error> {
        if let Some(expected) = self.announced(sql, params) {
            return self.answer(expected);
        }
        self.count(sql)?;
        let answer = match &mut self.inner {
            Inner::Sqlite(connection) => {
                sqlite::rows(connection, sql, params, &mut self.work).map_err(Failed::from)
            }
            Inner::Postgres(session) => {
                let number = session.ask(sql, params, Wants::Rows, changes(sql));
                session.rows(number)
            }
        };
        self.note(answer)
    }

    /// Runs a statement and calls `each` with every row, for results of many rows: one [`Row`] is refilled for each of
    /// them, instead of copying all rows into a list. An error from `each` ends the iteration.
    ///
    /// # Errors
    /// Like [`Tx::execute`], and the error from `each`.
    pub fn visit<E: From<Error>>(
        &mut self,
        sql: &str,
        params: &[Value],
        each: impl FnMut(&Row) -> Result<(), E>,
    ) -> Result<(), E> {
        let expected = self.announced(sql, params);
        match expected {
            Some(_) => self.check_active()?,
            None => self.count(sql)?,
        }
        let visited = match &mut self.inner {
            Inner::Sqlite(connection) => {
                sqlite::visit(connection, sql, params, &mut self.work, each).map_err(Failed::from)
            }
            Inner::Postgres(session) => {
                let number = match expected {
                    Some(Asked(number)) => number,
                    None => session.ask(sql, params, Wants::Rows, changes(sql)),
                };
                session.visit(number, each)
            }
        };
        self.note(visited)?
    }

    /// Like [`Tx::visit`], for a statement with a list `({})` and no other parameter. The values may repeat, and
    /// there may be many.
    ///
    /// # Errors
    /// Like [`Tx::visit`].
    pub fn visit_list<E: From<Error>>(
        &mut self,
        sql: &'static str,
        list: &[Value],
        mut each: impl FnMut(&Row) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut statements = rows::of_list(sql, list).into_iter();
        statements.try_for_each(|(sql, params)| self.visit(&sql, &params, &mut each))
    }

    /// Like [`Tx::expect`], for [`Tx::visit_list`].
    ///
    /// # Errors
    /// Like [`Tx::expect`].
    pub fn expect_list(&mut self, sql: &'static str, list: &[Value]) -> Result<(), Error> {
        if matches!(self.inner, Inner::Sqlite(_)) {
            return Ok(());
        }
        let mut statements = rows::of_list(sql, list).into_iter();
        statements.try_for_each(|(sql, params)| self.expect(&sql, &params))
    }

    /// Runs a statement and returns its first row, if any.
    ///
    /// # Errors
    /// Like [`Tx::execute`].
    pub fn row(&mut self, sql: &str, params: &[Value]) -> Result<Option<Row>, Error> {
        Ok(self.rows(sql, params)?.into_iter().next())
    }

    /// Runs `work` in a savepoint: an error rolls back its effects only, and the transaction
    /// continues, on PostgreSQL too. Use it to try, for example, one candidate after the other.
    ///
    /// If a statement that `work` deferred fails after `work` has ended, the whole transaction
    /// fails, even within an outer attempt. The same applies to a conflict. The attempt then
    /// returns that error, regardless of the result of `work`.
    ///
    /// On SQLite, attempts have no savepoints at first: an error then ends the transaction, and its work runs
    /// again with savepoints.
    ///
    /// # Errors
    /// The error of `work`, or a store error converted to `E`.
    pub fn attempt<T, E: From<Error>>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let hooks = self.hooks.len();
        self.begin_attempt()?;
        let answer = work(self);
        self.check_active()?;
        self.end_attempt(hooks, answer.is_ok())?;
        answer
    }

    fn begin_attempt(&mut self) -> Result<(), Error> {
        self.check_active()?;
        self.depth += 1;
        match &mut self.inner {
            Inner::Sqlite(_) if self.attempts == Attempts::Bare => Ok(()),
            Inner::Sqlite(_) => self.batch(&format!("SAVEPOINT attempt_{}", self.depth)),
            Inner::Postgres(session) => {
                session.savepoint();
                Ok(())
            }
        }
    }

    /// True in an attempt whose failure makes the work run again: effects outside of the transaction, such as counters
    /// of failures, must wait for that run.
    pub fn repeats_failures(&self) -> bool {
        self.attempts == Attempts::Bare && self.depth > 0
    }

    /// Ends the transaction, so that its work runs again with savepoints.
    fn ask_for_savepoints(&mut self) -> Error {
        let error = Error::Retry("an attempt without a savepoint failed".into());
        self.needs_savepoints = true;
        self.must_roll_back = Some(error.again());
        error
    }

    /// Ends the innermost attempt. `hooks` is the number of hooks that a rollback keeps.
    fn end_attempt(&mut self, hooks: usize, is_ok: bool) -> Result<(), Error> {
        let depth = self.depth;
        self.depth -= 1;
        if self.attempts == Attempts::Bare {
            return if is_ok { Ok(()) } else { Err(self.ask_for_savepoints()) };
        }
        // After a failed statement, PostgreSQL can only roll back to the savepoint.
        let hidden = match &self.inner {
            Inner::Sqlite(_) => false,
            Inner::Postgres(session) => is_ok && session.has_failed(),
        };
        if is_ok && !hidden {
            return match &mut self.inner {
                Inner::Sqlite(_) => self.batch(&format!("RELEASE SAVEPOINT attempt_{depth}")),
                Inner::Postgres(session) => {
                    session.release();
                    Ok(())
                }
            };
        }
        self.hooks.truncate(hooks);
        self.expected.clear();
        match &mut self.inner {
            Inner::Sqlite(_) => self.batch(&format!(
                "ROLLBACK TO SAVEPOINT attempt_{depth}; RELEASE SAVEPOINT attempt_{depth}"
            ))?,
            Inner::Postgres(session) => session.restore(),
        }
        match hidden {
            true => Err(Error::Other("an attempt with a failed statement cannot succeed".into())),
            false => Ok(()),
        }
    }

    /// Runs `hook` after the commit, and never otherwise. On SQLite hooks run in commit order. On
    /// PostgreSQL the hooks of two transactions may run in either order, so their effects must be
    /// absolute and versioned.
    pub fn on_commit(&mut self, hook: impl FnOnce() + Send + 'static) {
        self.hooks.push(Hook { asked: None, run: Box::new(|_| hook()) });
    }

    /// Like [`Tx::on_commit`], with the rows of a statement that was asked before. On PostgreSQL they
    /// may arrive with the commit, so the transaction does not wait for them. If the connection is lost
    /// during the commit and a lookup shows that the commit succeeded, there are no rows.
    pub fn on_commit_with(&mut self, asked: Asked, hook: impl FnOnce(Vec<Row>) + Send + 'static) {
        let hook = match &self.inner {
            Inner::Sqlite(_) => {
                let rows = self.answered(&asked);
                Hook { asked: None, run: Box::new(move |_| hook(rows)) }
            }
            Inner::Postgres(_) => Hook { asked: Some(asked.0), run: Box::new(hook) },
        };
        self.hooks.push(hook);
    }

    /// The time of the database's clock, which all controllers share; on SQLite, of this machine's clock.
    ///
    /// # Errors
    /// Like [`Tx::execute`].
    pub fn database_time(&mut self) -> Result<Timestamp, Error> {
        if !self.is_postgres() {
            return Ok(Timestamp::now());
        }
        let row = self.row(PG_CLOCK, &[])?;
        row.ok_or_else(|| Error::Shape("the database's clock returned no time".into()))?.time("now")
    }

    /// True on PostgreSQL. Only for features that a single process on SQLite does not need, such as the
    /// change log's horizon, clocks, leases and row locks.
    pub fn is_postgres(&self) -> bool {
        matches!(self.inner, Inner::Postgres(_))
    }

    /// Lifts the time limits of this transaction's statements, for changes to the schema.
    pub(crate) fn lift_time_limits(&mut self) {
        match &mut self.inner {
            Inner::Sqlite(_) => {}
            Inner::Postgres(session) => session.lift_time_limits(),
        }
    }

    pub(crate) fn prepare(&mut self, sql: &str) -> Result<(), Error> {
        match &mut self.inner {
            Inner::Sqlite(connection) => Ok(connection.prepare_cached(sql).map(|_| ())?),
            Inner::Postgres(session) => session.prepare(sql),
        }
    }

    pub(crate) fn batch(&mut self, sql: &str) -> Result<(), Error> {
        self.check_active()?;
        let answer = match &mut self.inner {
            Inner::Sqlite(connection) => {
                connection.execute_batch(sql).map_err(|error| Error::from(error).into())
            }
            Inner::Postgres(session) => session.batch(sql),
        };
        self.note(answer)
    }
}

/// Words by which a query that changes the database is recognized: data-modifying `WITH`, and functions.
const CHANGING: [&str; 7] =
    ["INSERT", "UPDATE", "DELETE", "MERGE", "SETVAL(", "NEXTVAL(", "PG_NOTIFY("];

fn begins_with(sql: &str, verb: &str) -> bool {
    sql.trim_start().get(..verb.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(verb))
}

/// True for a `SELECT`. Other statements may change something, even if they return rows
/// (`RETURNING`).
fn is_read(sql: &str) -> bool {
    begins_with(sql, "SELECT")
}

/// True for a statement that may change the database; `SELECT … FOR UPDATE` counts too.
fn changes(sql: &str) -> bool {
    if !is_read(sql) && !begins_with(sql, "WITH") {
        return true;
    }
    let text = sql.to_ascii_uppercase();
    CHANGING.iter().any(|word| text.contains(word))
}
