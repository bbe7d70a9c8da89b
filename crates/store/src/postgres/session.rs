//! One open transaction on PostgreSQL, driven from a blocking thread.
//!
//! It must never begin a second transaction: its owner begins and ends it.

use super::connection::{Connection, Failed};
use super::queue::Wants;
use crate::{Error, Row, Value};

pub(crate) struct Session<'a>(&'a mut Connection);

impl<'a> Session<'a> {
    pub(super) fn new(connection: &'a mut Connection) -> Self {
        Self(connection)
    }

    /// Adds a statement to those that are sent with the next one whose answer is needed, and returns
    /// the number of its answer.
    pub(crate) fn ask(&mut self, sql: &str, params: &[Value], wants: Wants) -> u64 {
        self.0.ask(sql, params, wants)
    }

    /// The number of changed rows that was asked for.
    pub(crate) fn changed(&mut self, number: u64) -> Result<u64, Failed> {
        self.0.changed(number)
    }

    /// The rows that were asked for.
    pub(crate) fn rows(&mut self, number: u64) -> Result<Vec<Row>, Failed> {
        self.0.rows(number)
    }

    pub(crate) fn prepare(&mut self, sql: &str) -> Result<(), Error> {
        self.0.prepare(sql)
    }

    /// Sets a savepoint with the next statement, and returns its number.
    pub(crate) fn savepoint(&mut self) -> u64 {
        self.0.savepoint()
    }

    /// Releases a savepoint, with the next statement.
    pub(crate) fn release(&mut self, savepoint: u64) {
        self.0.release(savepoint);
    }

    /// Restores a savepoint and releases it, with the next statement.
    pub(crate) fn restore(&mut self, savepoint: u64) {
        self.0.restore(savepoint);
    }

    /// Lifts the limits on this transaction's statements.
    pub(crate) fn be_patient(&mut self) {
        self.0.be_patient();
    }

    pub(crate) fn batch(&mut self, sql: &str) -> Result<(), Failed> {
        self.0.batch(sql)
    }

    /// The round trips of the transaction, with that of its commit.
    pub(crate) fn round_trips(&self, commits: bool) -> u64 {
        self.0.round_trips() + u64::from(commits && self.0.will_commit())
    }
}
