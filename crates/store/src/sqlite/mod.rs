//! SQLite: one writer thread with group commit, and reader connections.
//!
//! The writer takes all waiting transactions (up to [`MAX_GROUP`]), runs them one after the other in one
//! outer transaction, and commits once with `synchronous=FULL`: under load one fsync serves many
//! transactions. No transaction is acknowledged before the commit. Hooks run on the writer's
//! thread, in commit order.

mod pragma;
mod readers;
mod writer;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use kilonova_threads::Pool;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, StatementStatus, ToSql};
use tokio::sync::oneshot;

use crate::commits::Commits;
use crate::tx::Attempts;
use crate::value::{Field, Names};
use crate::work::{Outcome, Work};
use crate::{Error, Row, Tx, Value};

/// Maximum number of transactions that share one commit.
const MAX_GROUP: usize = 128;

pub(crate) struct Sqlite {
    commits: Commits,
    writer: writer::Writer,
    readers: Arc<readers::Readers>,
    /// One thread per reader connection.
    threads: Pool,
}

impl Sqlite {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let connection = pragma::connect(path)?;
        pragma::set_durable(&connection)?;
        let commits = Commits::default();
        Ok(Self {
            writer: writer::Writer::start(connection, commits.clone())?,
            commits,
            readers: Arc::new(readers::Readers::new(path)),
            threads: Pool::new("sqlite-reader", readers::MAX_READERS)
                .map_err(|e| Error::Open(format!("cannot start the readers' threads: {e}")))?,
        })
    }

    pub(crate) async fn write(&self, work: Work) -> Outcome {
        let (answer, wait) = oneshot::channel();
        self.writer.submit(writer::Job::new(work, answer))?;
        wait.await.unwrap_or_else(|_| {
            Err(Error::Other("the transaction panicked and was rolled back".into()).into())
        })
    }

    /// Waits for the hooks of the commits in progress.
    pub(crate) async fn settled(&self) {
        self.commits.settled().await;
    }

    pub(crate) async fn read(&self, mut work: Work) -> Outcome {
        let readers = Arc::clone(&self.readers);
        let read = move || {
            let reader = readers.take()?;
            run(&reader, "BEGIN")?;
            let mut tx = Tx::sqlite(&reader, Attempts::Savepoints);
            let outcome = work(&mut tx);
            let hooks = std::mem::take(&mut tx.hooks);
            // An error may have ended the transaction. A reader that cannot end its own transaction
            // is closed.
            if reader.is_autocommit() || run(&reader, "COMMIT").is_ok() {
                readers.give(reader);
            }
            if outcome.is_ok() {
                hooks.into_iter().for_each(|hook| hook.run(|_| Vec::new()));
            }
            outcome
        };
        self.threads
            .run(read)
            .await
            .unwrap_or_else(|error| Err(Error::Other(format!("a read failed: {error}")).into()))
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(value) => ValueRef::Integer(*value),
            Self::Real(value) => ValueRef::Real(*value),
            Self::Text(value) => ValueRef::Text(value.as_bytes()),
        }))
    }
}

/// Runs a statement that begins or ends a transaction or a savepoint.
fn run(connection: &Connection, sql: &str) -> Result<(), Error> {
    connection.prepare_cached(sql)?.execute(())?;
    Ok(())
}

/// The number of instructions in a statement's last run.
fn work(statement: &rusqlite::Statement<'_>) -> u64 {
    u64::try_from(statement.reset_status(StatementStatus::VmStep)).unwrap_or(0)
}

/// Returns the number of changed rows, and adds the statement's work to `taken`.
pub(crate) fn execute(
    connection: &Connection,
    sql: &str,
    params: &[Value],
    taken: &mut u64,
) -> Result<u64, Error> {
    let mut statement = connection.prepare_cached(sql)?;
    let changed = statement.execute(rusqlite::params_from_iter(params));
    *taken += work(&statement);
    Ok(changed? as u64)
}

/// Returns the rows, and adds the statement's work to `taken`.
pub(crate) fn rows(
    connection: &Connection,
    sql: &str,
    params: &[Value],
    taken: &mut u64,
) -> Result<Vec<Row>, Error> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = collect(&mut statement, params);
    *taken += work(&statement);
    rows
}

/// Calls `each` with every row until it fails, and adds the statement's work to `taken`. The outer
/// error is the statement's.
pub(crate) fn visit<E>(
    connection: &Connection,
    sql: &str,
    params: &[Value],
    taken: &mut u64,
    each: impl FnMut(&Row) -> Result<(), E>,
) -> Result<Result<(), E>, Error> {
    let mut statement = connection.prepare_cached(sql)?;
    let visited = pass(&mut statement, params, each);
    *taken += work(&statement);
    visited
}

/// The value of a column. SQLite does not check text: bytes that are not UTF-8 are replaced.
fn field<'a>(row: &'a rusqlite::Row<'_>, index: usize) -> Result<Field<'a>, Error> {
    Ok(match row.get_ref(index)? {
        ValueRef::Null => Field::Null,
        ValueRef::Integer(value) => Field::Int(value),
        ValueRef::Real(value) => Field::Real(value),
        // Valid text, the usual case, is only validated, which is faster than a lossy conversion.
        ValueRef::Text(bytes) => Field::Text(match std::str::from_utf8(bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(bytes),
        }),
        ValueRef::Blob(_) => return Err(Error::Shape(format!("column {index} is a blob"))),
    })
}

fn names<'a>(row: &'a rusqlite::Row<'_>) -> Vec<&'a str> {
    row.as_ref().column_names().collect()
}

fn collect(statement: &mut rusqlite::Statement<'_>, params: &[Value]) -> Result<Vec<Row>, Error> {
    let width = statement.column_count();
    let mut cursor = statement.query(rusqlite::params_from_iter(params))?;
    let (mut known, mut rows) = (None, Vec::new());
    while let Some(row) = cursor.next()? {
        let columns = (0..width).map(|index| Ok(field(row, index)?.into()));
        let columns = columns.collect::<Result<Vec<_>, Error>>()?;
        let names = known.get_or_insert_with(|| Arc::new(Names::new(&names(row))));
        rows.push(Row::new(names, columns));
    }
    Ok(rows)
}

fn pass<E>(
    statement: &mut rusqlite::Statement<'_>,
    params: &[Value],
    mut each: impl FnMut(&Row) -> Result<(), E>,
) -> Result<Result<(), E>, Error> {
    let mut cursor = statement.query(rusqlite::params_from_iter(params))?;
    let mut one = None;
    while let Some(row) = cursor.next()? {
        let one = one.get_or_insert_with(|| Row::unfilled(&names(row)));
        one.refill(|index| field(row, index))?;
        if let Err(refused) = each(one) {
            return Ok(Err(refused));
        }
    }
    Ok(Ok(()))
}
