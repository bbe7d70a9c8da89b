//! One open transaction on PostgreSQL, driven from a blocking thread.
//!
//! It must never begin a second transaction: its owner begins and ends it.

use super::connection::Connection;
use crate::{Error, Row, Value};

pub(crate) struct Session<'a>(&'a mut Connection);

impl<'a> Session<'a> {
    pub(super) fn new(connection: &'a mut Connection) -> Self {
        Self(connection)
    }

    pub(crate) fn execute(&mut self, sql: &str, params: &[Value]) -> Result<u64, Error> {
        self.0.execute(sql, params)
    }

    pub(crate) fn rows(&mut self, sql: &str, params: &[Value]) -> Result<Vec<Row>, Error> {
        self.0.rows(sql, params)
    }

    pub(crate) fn prepare(&mut self, sql: &str) -> Result<(), Error> {
        self.0.prepare(sql).map(drop)
    }

    /// Sets a savepoint, with the next statement.
    pub(crate) fn savepoint(&mut self, name: &str) {
        self.0.later(&format!("SAVEPOINT {name}"));
    }

    /// Releases a savepoint, with the next statement.
    pub(crate) fn release(&mut self, name: &str) {
        self.0.later(&format!("RELEASE SAVEPOINT {name}"));
    }

    /// Restores a savepoint and releases it, with the next statement.
    pub(crate) fn restore(&mut self, name: &str) {
        self.0.restore(name);
    }

    pub(crate) fn batch(&mut self, sql: &str) -> Result<(), Error> {
        self.0.batch(sql)
    }
}
