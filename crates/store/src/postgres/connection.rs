//! One connection to PostgreSQL, driven by the thread that uses it.
//!
//! A connection has a runtime of its own and no task: its socket is read and written only while a thread runs a
//! function of this module. A statement therefore wakes no other thread, and an idle connection costs nothing. This
//! module must never decide whether a transaction runs again.
//!
//! Statements that only control the transaction (`BEGIN`, `SAVEPOINT`) and those whose answer is
//! not needed yet wait in a [`Queue`]. They are sent together with the next statement whose answer
//! is needed, or with `COMMIT`, in one round trip. If one of them fails, the server refuses those
//! after it, and a `COMMIT` rolls back.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use super::dial::{Refused, dial};
use super::fate::{self, Fate, Mark, Ticket};
use super::line::{Asking, Line, OwnRuntime};
use super::queue::{Call, Plan, Queue, Request, Wants};
use super::types;
use super::url::PostgresUrl;
use super::{Lane, turns};
use crate::{Error, Options, Row, Value};

/// How long a migration's statement may take.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

pub(super) struct Connection {
    runtime: OwnRuntime,
    line: Line,
    /// How long the answer to an ordinary statement may take.
    limit: Duration,
    /// Prepared statements by their text, as the services write it.
    statements: HashMap<String, Statement>,
    client: Client,
    /// Statements that are sent with the next statement whose answer is needed.
    queue: Queue,
    /// The answers that have not been read yet, by the number of the statement.
    answers: Vec<(u64, Reply)>,
    /// Round trips of this transaction, without those that only prepare statements.
    round_trips: u64,
    /// True if this transaction may only read.
    read_only: bool,
    /// The row at which the transaction takes a turn.
    turn: Option<Lane>,
    /// True once this transaction has sent a statement.
    begun: bool,
    /// True once this transaction has sent a statement that changes something.
    wrote: bool,
    /// True once a `COMMIT` with a mark was sent: its outcome can be looked up.
    marked: bool,
    /// True after a failed statement, until a savepoint is restored: the server rolls such a
    /// transaction back, even at `COMMIT`.
    failed: bool,
    /// True if the transaction must run again after a statement has waited [`super::LOCK_TIMEOUT`] for a lock.
    gives_up_locks: bool,
    /// True if it has waited so long.
    gave_up_lock: bool,
    /// When it was opened.
    since: Instant,
    /// How it marks the transactions that it commits.
    mark: Mark,
}

/// The answer to a statement.
enum Reply {
    Changed(u64),
    Rows(Vec<tokio_postgres::Row>),
}

/// Why statements that were sent together failed.
pub(crate) struct Failed {
    pub error: Error,
    /// The first parameter of the statement that failed: the key of its row.
    pub key: Option<Value>,
    /// True if no open savepoint can undo the failure: the statement belongs to none, or to an attempt
    /// that has ended or is not the innermost one. The whole transaction has then failed.
    pub is_final: bool,
    /// True if the server has refused a statement: the transaction cannot commit. False if an answer
    /// is missing, such as the answer to a `COMMIT`.
    pub is_refused: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, key: None, is_final: false, is_refused: false }
    }
}

impl Connection {
    /// Connects, on the current thread. `last` is the index of the host that accepted the last
    /// connection.
    ///
    /// # Errors
    /// If no host accepts.
    pub(super) fn open(
        url: &PostgresUrl,
        options: &Options,
        last: &AtomicUsize,
    ) -> Result<Self, Refused> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| Refused {
            why: format!("cannot start a connection's runtime: {e}"),
            is_temporary: true,
        })?;
        let dialed = runtime.block_on(dial(url, options, last))?;
        let (client, driver, limit) = (dialed.client, dialed.driver, options.answer_timeout);
        let line = Line::new(driver, limit);
        Ok(Self {
            runtime: OwnRuntime::new(runtime),
            line,
            limit,
            statements: HashMap::new(),
            client,
            queue: Queue::default(),
            answers: Vec::new(),
            round_trips: 0,
            read_only: false,
            turn: None,
            begun: false,
            wrote: false,
            marked: false,
            failed: false,
            gives_up_locks: false,
            gave_up_lock: false,
            since: Instant::now(),
            mark: Mark::new(),
        })
    }

    /// Marks the connection as unusable.
    pub(super) fn abandon(&mut self) {
        self.line.broken = true;
    }

    /// The time since it was opened.
    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// True if the connection can be used for another transaction.
    pub(super) fn is_usable(&self) -> bool {
        !self.line.broken && !self.client.is_closed()
    }

    /// Prepares the connection to mark its commits, unless it is prepared already.
    ///
    /// # Errors
    /// If the server fails.
    pub(super) fn ready(&mut self) -> Result<(), Error> {
        if self.mark.is_ready {
            return Ok(());
        }
        let sql = self.mark.setup();
        self.simple(&sql)?;
        self.mark.is_ready = true;
        Ok(())
    }

    /// Looks up the outcome of a transaction whose connection was lost, and prevents the lost
    /// connection from committing it later.
    ///
    /// # Errors
    /// If the server fails: the outcome is still unknown.
    pub(super) fn fate(&mut self, ticket: &Ticket) -> Result<Fate, Error> {
        self.ready()?;
        let rows = self.simple(&ticket.lookup())?;
        let number = rows.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
            _ => None,
        });
        number
            .and_then(|number| ticket.fate(number))
            .ok_or_else(|| Error::Shape(format!("{} has no trace of a transaction", fate::TABLE)))
    }

    /// The ticket of the last transaction that this connection tried to commit.
    pub(super) fn ticket(&self) -> Ticket {
        self.mark.ticket()
    }

    /// Runs statements without parameters outside a transaction, with the time limit of ordinary
    /// statements.
    fn simple(&mut self, sql: &str) -> Result<Vec<tokio_postgres::SimpleQueryMessage>, Error> {
        self.line.limit = self.limit;
        let Self { runtime, line, client, .. } = self;
        let client = &*client;
        let asking: Asking<'_, _> = Box::pin(client.simple_query(sql));
        let answers = runtime.run(line.answers(vec![asking]))?;
        let first = answers.into_iter().next();
        let closed = || Error::Unavailable("the connection to PostgreSQL is closed".into());
        Ok(first.ok_or_else(closed)??)
    }

    /// Makes the server wait for the turn at a row, up to a timeout, before the next transaction begins. Does not wait
    /// for the answer: the server runs the next statement after the wait.
    pub(super) fn take_turn(&mut self, row: Lane) {
        self.end_turn();
        self.turn = Some(row);
        self.send(&turns::take(row));
    }

    /// Ends the turn, if there is one.
    fn end_turn(&mut self) {
        if let Some(row) = self.turn.take() {
            self.send(&turns::end(row));
        }
    }

    /// Begins a transaction. `BEGIN` is sent with its first statement.
    pub(super) fn begin(&mut self, read_only: bool) {
        self.line.limit = self.limit;
        (self.begun, self.failed, self.round_trips) = (false, false, 0);
        (self.read_only, self.wrote, self.marked) = (read_only, false, false);
        (self.gives_up_locks, self.gave_up_lock) = (false, false);
        self.queue.reset();
        self.answers.clear();
        self.queue.control(if read_only {
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        } else {
            "BEGIN ISOLATION LEVEL REPEATABLE READ"
        });
    }

    /// Commits, together with the statements that have not been sent yet. `answers` are those that
    /// the commit's hooks need. A transaction that changed nothing has no mark, and its commit waits
    /// for an answer only if a queued statement must still run: otherwise it cannot fail.
    ///
    /// # Errors
    /// If the commit or a statement before it failed, or if a statement failed and the work ignored the failure. After
    /// [`Error::Unavailable`] the outcome is unknown if the transaction is [marked](Self::is_marked); otherwise nothing
    /// was changed.
    pub(super) fn commit(&mut self, answers: &[u64]) -> Result<(), Failed> {
        if self.failed {
            self.roll_back();
            let hidden = "a transaction with a failed statement cannot commit";
            return Err(Error::Other(hidden.into()).into());
        }
        if !self.waits_for_commit(answers) {
            self.queue.clear();
            if self.begun {
                self.send("COMMIT");
            }
            self.end_turn();
            return Ok(());
        }
        if !self.read_only && (self.wrote || self.queue.writes()) {
            // In one message with COMMIT, which the server does not run after an error.
            let mark = self.mark.advance();
            self.queue.control(&mark);
            self.marked = true;
        }
        self.queue.control("COMMIT");
        if let Some(row) = self.turn {
            // A message of its own, which the server runs regardless of the outcome.
            self.queue.after(turns::end(row));
        }
        let committed = self.flush();
        if committed.is_err() && self.is_usable() {
            self.roll_back();
        }
        committed
    }

    /// True if the commit, whose hooks need these answers, waits for the server.
    pub(super) fn waits_for_commit(&self, answers: &[u64]) -> bool {
        (self.wrote && !self.read_only) || self.queue.is_needed(answers)
    }

    /// True if the last commit was sent with a mark.
    pub(super) fn is_marked(&self) -> bool {
        self.marked
    }

    /// True after a failed statement, until a savepoint is restored.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Rolls back, without waiting for the answer.
    pub(super) fn roll_back(&mut self) {
        self.queue.clear();
        if self.begun {
            self.send("ROLLBACK");
        }
        self.end_turn();
    }

    /// Begins an attempt: sets a savepoint with the next statement.
    pub(super) fn savepoint(&mut self) {
        self.queue.savepoint();
    }

    /// Ends the innermost attempt, and releases its savepoint with the next statement.
    pub(super) fn release(&mut self) {
        self.queue.release();
    }

    /// Ends the innermost attempt, and restores its savepoint with the next statement.
    pub(super) fn restore(&mut self) {
        if self.queue.restore() {
            self.failed = false;
        }
    }

    /// Round trips of this transaction.
    pub(super) fn round_trips(&self) -> u64 {
        self.round_trips
    }

    /// Lifts the time limits of this transaction's statements.
    pub(super) fn lift_time_limits(&mut self) {
        self.line.limit = MIGRATION_TIMEOUT;
        self.gives_up_locks = false;
        self.queue.control("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0");
    }

    /// True if the transaction must run again because it has waited too long for a lock.
    pub(super) fn gave_up_lock(&self) -> bool {
        self.gave_up_lock
    }

    /// Limits each wait of this transaction for a lock to `most`. The transaction must run again after a longer wait.
    pub(super) fn give_up_locks(&mut self, most: Duration) {
        self.gives_up_locks = true;
        self.queue.control(&format!("SET LOCAL lock_timeout = {}", most.as_millis()));
    }

    /// Runs statements that have no parameters and change something, and waits for their completion.
    pub(super) fn batch(&mut self, sql: &str) -> Result<(), Failed> {
        self.wrote = true;
        self.queue.control(sql);
        self.flush()
    }

    /// Sends a statement that cannot fail, without waiting for its answer: the server runs the next transaction on this
    /// connection after it.
    fn send(&mut self, sql: &str) {
        let Self { runtime, line, client, .. } = self;
        let mut sent = pin!(client.batch_execute(sql));
        let sent = runtime.run(poll_fn(|context| {
            line.broken |= matches!(sent.as_mut().poll(context), Poll::Ready(Err(_)));
            line.poll(context);
            Poll::Ready(Ok(()))
        }));
        line.broken |= sent.is_err();
    }

    /// Queues a statement, which is sent with the next one whose answer is needed. Returns the number of the queued
    /// statement. `writes` is true if it changes something.
    pub(super) fn ask(&mut self, sql: &str, params: &[Value], wants: Wants, writes: bool) -> u64 {
        let plan = match self.statements.get(sql) {
            Some(statement) => Plan::Prepared(statement.clone()),
            None => Plan::Text(sql.to_owned()),
        };
        self.queue.call(plan, params.to_vec(), wants, writes)
    }

    /// The number of rows that the statement with this number has changed.
    pub(super) fn changed(&mut self, number: u64) -> Result<u64, Failed> {
        match self.answer(number)? {
            Reply::Changed(changed) => Ok(changed),
            Reply::Rows(rows) => Ok(rows.len() as u64),
        }
    }

    /// The rows of the statement with this number.
    pub(super) fn rows(&mut self, number: u64) -> Result<Vec<Row>, Failed> {
        match self.answer(number)? {
            Reply::Changed(_) => Ok(Vec::new()),
            Reply::Rows(rows) => Ok(types::rows(&rows)?),
        }
    }

    /// Calls `each` with every row of the statement with this number, until `each` fails. The outer error is the
    /// statement's.
    pub(super) fn visit<E>(
        &mut self,
        number: u64,
        each: impl FnMut(&Row) -> Result<(), E>,
    ) -> Result<Result<(), E>, Failed> {
        match self.answer(number)? {
            Reply::Changed(_) => Ok(Ok(())),
            Reply::Rows(rows) => Ok(types::visit(&rows, each)?),
        }
    }

    /// The rows of the statement with this number, if they arrived with the commit or before it.
    /// Nothing may fail after a commit, so rows of an unexpected shape count as none.
    pub(super) fn committed(&mut self, number: u64) -> Vec<Row> {
        let position = self.answers.iter().position(|(of, _)| *of == number);
        match position.map(|position| self.answers.swap_remove(position).1) {
            Some(Reply::Rows(rows)) => types::rows(&rows).unwrap_or_default(),
            Some(Reply::Changed(_)) | None => Vec::new(),
        }
    }

    fn answer(&mut self, number: u64) -> Result<Reply, Failed> {
        if !self.answers.iter().any(|(of, _)| *of == number) {
            self.flush()?;
        }
        let position = self.answers.iter().position(|(of, _)| *of == number);
        position.map(|position| self.answers.swap_remove(position).1).ok_or_else(|| {
            Error::Other("the statement was rolled back before its answer was read".into()).into()
        })
    }

    /// Sends all statements and waits for their answers.
    fn flush(&mut self) -> Result<(), Failed> {
        let sent = match self.prepare_queue() {
            Ok(()) => {
                let requests = self.queue.take();
                self.exchange(&requests)
            }
            // The waiting statements are not sent. Only an attempt that contains all of them can undo that.
            Err(failed) => {
                let is_final = failed.is_final || !self.queue.can_restore_all();
                Err(Failed { is_final, ..failed })
            }
        };
        if sent.is_err() {
            self.failed = true;
            self.queue.clear();
        }
        sent
    }

    /// Prepares the queued statements that are new to this connection.
    fn prepare_queue(&mut self) -> Result<(), Failed> {
        let mut texts: Vec<String> = self.queue.unprepared().map(str::to_owned).collect();
        if texts.is_empty() {
            return Ok(());
        }
        texts.sort_unstable();
        texts.dedup();
        // In a failed transaction, a savepoint must be restored first.
        if self.begun {
            let control = self.queue.take_control();
            self.exchange(&control)?;
            self.round_trips -= u64::from(!control.is_empty());
        }
        self.prepare_all(&texts)?;
        let Self { queue, statements, .. } = self;
        queue.prepared(|sql| statements.get(sql).cloned());
        Ok(())
    }

    /// Prepares statements in one round trip.
    fn prepare_all(&mut self, texts: &[String]) -> Result<(), Error> {
        let own: Vec<String> = texts.iter().map(|sql| rewrite(sql)).collect();
        // Before the transaction has begun, its limit does not hold.
        let gives_up_locks = self.gives_up_locks && self.begun;
        let Self { runtime, line, client, .. } = self;
        let client = &*client;
        let wanted = own.iter().map(|sql| -> Asking<'_, _> { Box::pin(client.prepare(sql)) });
        let prepared = runtime.run(line.answers(wanted.collect()))?;
        for (sql, statement) in texts.iter().zip(prepared) {
            let statement = statement.map_err(|error| error_of(error, gives_up_locks))?;
            self.statements.insert(sql.clone(), statement);
        }
        Ok(())
    }

    /// Sends statements without waiting in between, then waits for all of their answers.
    fn exchange(&mut self, requests: &[Request]) -> Result<(), Failed> {
        let Self { runtime, line, client, queue, .. } = self;
        let (client, mut asking, mut positions) = (&*client, Vec::new(), Vec::new());
        let (mut writes, mut ends_turn) = (false, false);
        let mut position = 0;
        while let Some(request) = requests.get(position) {
            positions.push(position);
            if let Request::Statement(call) = request {
                let Plan::Prepared(statement) = &call.plan else {
                    return Err(Error::Other("a statement was not prepared".into()).into());
                };
                writes |= call.writes;
                asking.push(ask(client, call, statement));
                position += 1;
            } else if let Request::After(sql) = request {
                ends_turn = true;
                asking.push(control(client, sql.clone()));
                position += 1;
            } else {
                let (sql, number) =
                    Request::leading_control(requests.get(position..).unwrap_or(&[]));
                asking.push(control(client, sql));
                position += number;
            }
        }
        if asking.is_empty() {
            return Ok(());
        }
        (self.begun, self.round_trips) = (true, self.round_trips + 1);
        self.wrote |= writes;
        let number = asking.len();
        let answers = runtime.run(line.answers(asking))?;
        let is_sent = answers.len() == number;
        if is_sent && ends_turn {
            self.turn = None;
        }
        for (position, answer) in positions.into_iter().zip(answers) {
            match (answer, requests.get(position)) {
                (Ok(Some(reply)), Some(Request::Statement(call))) => {
                    self.answers.push((call.number, reply));
                }
                (Ok(_), _) => {}
                (Err(error), request) => {
                    let key = match request {
                        Some(Request::Statement(call)) => call.params.first().cloned(),
                        _ => None,
                    };
                    let is_final = !request.is_some_and(|request| queue.can_restore(request));
                    // An error that ends the session is FATAL, and may occur during a commit.
                    let answer = error.as_db_error().and_then(DbError::parsed_severity);
                    let is_refused = answer == Some(Severity::Error);
                    // In a read-only transaction this error is permanent. Otherwise the server is a
                    // standby, and a retry may succeed.
                    let writes = error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION);
                    let was_locked = error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE);
                    let error = match writes && self.read_only {
                        true => Error::Other(format!("a read cannot write: {error}")),
                        false => error_of(error, self.gives_up_locks),
                    };
                    self.gave_up_lock = self.gives_up_locks && was_locked;
                    return Err(Failed { error, key, is_final, is_refused });
                }
            }
        }
        if !is_sent {
            let error = Error::Other("a statement was not sent".into());
            return Err(Failed { is_final: true, ..error.into() });
        }
        Ok(())
    }

    /// Prepares a statement without running it.
    pub(super) fn prepare(&mut self, sql: &str) -> Result<(), Error> {
        let prepared = self.prepare_all(&[sql.to_owned()]);
        self.failed |= prepared.is_err();
        prepared
    }
}

fn control(client: &Client, sql: String) -> Asking<'_, Option<Reply>> {
    Box::pin(async move { client.batch_execute(&sql).await.map(|()| None) })
}

fn ask<'a>(
    client: &'a Client,
    call: &'a Call,
    statement: &'a Statement,
) -> Asking<'a, Option<Reply>> {
    Box::pin(async move {
        let params: Vec<_> = call.params.iter().map(|p| p as &(dyn ToSql + Sync)).collect();
        Ok(match call.wants {
            Wants::Rows => Some(Reply::Rows(client.query(statement, &params).await?)),
            Wants::Changed => Some(Reply::Changed(client.execute(statement, &params).await?)),
            Wants::Nothing => {
                client.execute(statement, &params).await?;
                None
            }
        })
    })
}

/// Rewrites `?3` to `$3`. Statements contain no literal question marks, because values are
/// parameters.
fn rewrite(sql: &str) -> String {
    sql.replace('?', "$")
}

/// The error of a statement. A lock that its transaction gives up is a conflict.
fn error_of(error: tokio_postgres::Error, gives_up_locks: bool) -> Error {
    match gives_up_locks && error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) {
        true => Error::Retry(format!("another transaction keeps a row locked: {error}")),
        false => error.into(),
    }
}
