//! One connection to PostgreSQL, driven by the thread that uses it.
//!
//! A connection has a runtime of its own and no task: its socket is read and written only while a
//! thread waits for an answer here. A statement therefore wakes no other thread, and an idle connection
//! costs nothing. It must never decide whether a transaction runs again.
//!
//! Statements that only control the transaction (`BEGIN`, `SAVEPOINT`) wait until the next statement
//! and are sent together with it, in one round trip.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Statement};

use super::types;
use crate::{Error, Row, Value};

/// How long a connection attempt may take.
const CONNECT: Duration = Duration::from_secs(5);

/// Reads and writes the socket.
type Driver = Pin<Box<dyn Future<Output = Result<(), tokio_postgres::Error>> + Send>>;

pub(super) struct Connection {
    runtime: OwnRuntime,
    line: Line,
    /// Prepared statements by their text, as the services write it.
    statements: HashMap<String, Statement>,
    client: Client,
    /// Control statements that are sent with the next statement.
    waiting: String,
    /// True once a statement of this transaction was sent.
    begun: bool,
    /// True after a failed statement, until a savepoint is restored: the server rolls such a
    /// transaction back, even at `COMMIT`.
    failed: bool,
}

/// A runtime that async code may drop: dropping a [`Runtime`] itself blocks.
struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    /// Runs a future on the current thread.
    ///
    /// # Errors
    /// Those of the future.
    fn run<T>(&self, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let closed = || Error::Unavailable("the connection to PostgreSQL is closed".into());
        self.0.as_ref().ok_or_else(closed)?.block_on(future)
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The socket, and how long an answer may take.
struct Line {
    /// `None` once the connection has ended: dropping it ends the requests that wait for an answer.
    driver: Option<Driver>,
    limit: Duration,
    /// True once the connection cannot be used any more.
    broken: bool,
}

impl Connection {
    /// Connects, on the current thread.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the server is unreachable or refuses the connection.
    pub(super) fn open(config: &tokio_postgres::Config, limit: Duration) -> Result<Self, Error> {
        let unavailable = |why: &dyn std::error::Error| {
            Error::Unavailable(format!("cannot connect to PostgreSQL: {}", chain(why)))
        };
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|e| unavailable(&e))?;
        let connected =
            runtime.block_on(async { tokio::time::timeout(CONNECT, config.connect(NoTls)).await });
        let (client, connection) = match connected {
            Ok(connected) => connected.map_err(|e| unavailable(&e))?,
            Err(late) => return Err(unavailable(&late)),
        };
        let line = Line { driver: Some(Box::pin(connection)), limit, broken: false };
        Ok(Self {
            runtime: OwnRuntime(Some(runtime)),
            line,
            statements: HashMap::new(),
            client,
            waiting: String::new(),
            begun: false,
            failed: false,
        })
    }

    /// Marks the connection as unusable.
    pub(super) fn abandon(&mut self) {
        self.line.broken = true;
    }

    /// True if the connection can be used for another transaction.
    pub(super) fn is_usable(&self) -> bool {
        !self.line.broken && !self.client.is_closed()
    }

    /// Begins a transaction with its first statement.
    pub(super) fn begin(&mut self, read_only: bool) {
        (self.begun, self.failed) = (false, false);
        self.waiting.clear();
        self.later(if read_only {
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        } else {
            "BEGIN ISOLATION LEVEL REPEATABLE READ"
        });
    }

    /// Commits. A transaction that only read does not wait for the answer, because its commit cannot
    /// fail.
    ///
    /// # Errors
    /// If the commit failed, or if a statement failed and the work hid that. After
    /// [`Error::Unavailable`] the outcome is unknown.
    pub(super) fn commit(&mut self, read_only: bool) -> Result<(), Error> {
        if self.failed {
            self.roll_back();
            return Err(Error::Other("a transaction with a failed statement cannot commit".into()));
        }
        if !self.begun {
            self.waiting.clear();
            return Ok(());
        }
        if read_only {
            self.send("COMMIT");
            return Ok(());
        }
        self.batch("COMMIT")
    }

    /// Rolls back, without waiting for the answer.
    pub(super) fn roll_back(&mut self) {
        self.waiting.clear();
        if self.begun {
            self.send("ROLLBACK");
        }
    }

    /// Restores a savepoint and releases it, with the next statement.
    pub(super) fn restore(&mut self, savepoint: &str) {
        self.failed = false;
        self.later(&format!("ROLLBACK TO SAVEPOINT {savepoint}; RELEASE SAVEPOINT {savepoint}"));
    }

    /// Sends a control statement with the next statement. Its failure is the failure of that one.
    pub(super) fn later(&mut self, sql: &str) {
        if !self.waiting.is_empty() {
            self.waiting.push_str("; ");
        }
        self.waiting.push_str(sql);
    }

    /// The control statements that must be sent now.
    fn control(&mut self) -> String {
        self.begun = true;
        std::mem::take(&mut self.waiting)
    }

    /// Runs statements without parameters and waits for their end.
    pub(super) fn batch(&mut self, sql: &str) -> Result<(), Error> {
        self.later(sql);
        self.flush()
    }

    /// Sends the control statements now and waits for their end.
    fn flush(&mut self) -> Result<(), Error> {
        let control = self.control();
        let Self { runtime, line, client, .. } = self;
        let ended = runtime.run(line.answer(client.batch_execute(&control)));
        self.failed |= ended.is_err();
        ended
    }

    /// Sends a statement that cannot fail and does not wait for its end: the next transaction on this
    /// connection comes after it.
    fn send(&mut self, sql: &str) {
        self.later(sql);
        let sql = self.control();
        let Self { runtime, line, client, .. } = self;
        let mut sent = pin!(client.batch_execute(&sql));
        let sent = runtime.run(poll_fn(|context| {
            line.broken |= matches!(sent.as_mut().poll(context), Poll::Ready(Err(_)));
            line.poll(context);
            Poll::Ready(Ok(()))
        }));
        line.broken |= sent.is_err();
    }

    pub(super) fn prepare(&mut self, sql: &str) -> Result<Statement, Error> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        // In a failed transaction, a savepoint must be restored first.
        if self.begun && !self.waiting.is_empty() {
            self.flush()?;
        }
        let own = rewrite(sql);
        let Self { runtime, line, client, .. } = self;
        let statement = runtime.run(line.answer(client.prepare(&own)));
        self.failed |= statement.is_err();
        let statement = statement?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    pub(super) fn execute(&mut self, sql: &str, params: &[Value]) -> Result<u64, Error> {
        let statement = self.prepare(sql)?;
        let control = self.control();
        let Self { runtime, line, client, .. } = self;
        let params = borrowed(params);
        let answer = client.execute(&statement, &params);
        let changed = runtime.run(line.answer(after(client, &control, answer)));
        self.failed |= changed.is_err();
        changed
    }

    pub(super) fn rows(&mut self, sql: &str, params: &[Value]) -> Result<Vec<Row>, Error> {
        let statement = self.prepare(sql)?;
        let control = self.control();
        let Self { runtime, line, client, .. } = self;
        let params = borrowed(params);
        let answer = client.query(&statement, &params);
        let rows = runtime.run(line.answer(after(client, &control, answer)));
        self.failed |= rows.is_err();
        types::rows(&rows?)
    }
}

/// Sends control statements and, without waiting for their end, a statement.
async fn after<T>(
    client: &Client,
    control: &str,
    statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, tokio_postgres::Error> {
    if control.is_empty() {
        return statement.await;
    }
    // Both are sent in this order, because `join` polls them in this order.
    let (controlled, answer) = tokio::join!(biased; client.batch_execute(control), statement);
    controlled?;
    answer
}

impl Line {
    /// The answer to a request; the socket is driven until it is there.
    async fn answer<T>(
        &mut self,
        request: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Error> {
        let limit = self.limit;
        let mut request = pin!(request);
        let answer = poll_fn(|context| {
            if let Poll::Ready(answer) = request.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            self.poll(context);
            // Driving the socket may have brought the answer, or the end of the connection.
            request.as_mut().poll(context)
        });
        match tokio::time::timeout(limit, answer).await {
            Ok(answer) => Ok(answer?),
            Err(_) => {
                self.broken = true;
                Err(Error::Unavailable(format!("PostgreSQL did not answer within {limit:?}")))
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) {
        if self.driver.as_mut().is_some_and(|driver| driver.as_mut().poll(context).is_ready()) {
            self.driver = None;
            self.broken = true;
        }
    }
}

fn borrowed(params: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    params.iter().map(|p| p as &(dyn ToSql + Sync)).collect()
}

/// Rewrites `?3` to `$3`. Statements contain no literal question marks, because values are
/// parameters.
fn rewrite(sql: &str) -> String {
    sql.replace('?', "$")
}

pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
