//! One open transaction on PostgreSQL, driven from a blocking thread.
//!
//! This module must never begin a second transaction: the owner of the transaction begins and ends
//! it.

use super::connection::{Connection, Failed};
use super::queue::Wants;
use crate::{Error, Row, Value};

pub(crate) struct Session<'a>(&'a mut Connection);

impl<'a> Session<'a> {
    pub(super) fn new(connection: &'a mut Connection) -> Self {
        Self(connection)
    }

    /// Queues a statement, which is sent with the next one whose answer is needed. Returns the number of the queued
    /// statement. `writes` is true if it changes something.
    pub(crate) fn ask(&mut self, sql: &str, params: &[Value], wants: Wants, writes: bool) -> u64 {
        self.0.ask(sql, params, wants, writes)
    }

    /// The number of rows that the statement with this number has changed.
    pub(crate) fn changed(&mut self, number: u64) -> Result<u64, Failed> {
        self.0.changed(number)
    }

    /// The rows of the statement with this number.
    pub(crate) fn rows(&mut self, number: u64) -> Result<Vec<Row>, Failed> {
        self.0.rows(number)
    }

    /// Calls `each` with every row of the statement with this number, until `each` fails. The outer error is the
    /// statement's.
    pub(crate) fn visit<E>(
        &mut self,
        number: u64,
        each: impl FnMut(&Row) -> Result<(), E>,
    ) -> Result<Result<(), E>, Failed> {
        self.0.visit(number, each)
    }

    pub(crate) fn prepare(&mut self, sql: &str) -> Result<(), Error> {
        self.0.prepare(sql)
    }

    /// Begins an attempt: sets a savepoint with the next statement.
    pub(crate) fn savepoint(&mut self) {
        self.0.savepoint();
    }

    /// Ends the innermost attempt: releases its savepoint with the next statement.
    pub(crate) fn release(&mut self) {
        self.0.release();
    }

    /// Ends the innermost attempt: restores and releases its savepoint with the next statement.
    pub(crate) fn restore(&mut self) {
        self.0.restore();
    }

    /// True after a failed statement, until a savepoint is restored.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.has_failed()
    }

    /// Lifts the time limits of this transaction's statements.
    pub(crate) fn lift_time_limits(&mut self) {
        self.0.lift_time_limits();
    }

    pub(crate) fn batch(&mut self, sql: &str) -> Result<(), Failed> {
        self.0.batch(sql)
    }

    /// The round trips of the transaction so far.
    pub(crate) fn round_trips(&self) -> u64 {
        self.0.round_trips()
    }

    /// The round trips of the transaction, including one for its commit if that waits for the server. The commit hooks
    /// need `answers`.
    pub(crate) fn round_trips_committed(&self, answers: &[u64]) -> u64 {
        self.0.round_trips() + u64::from(self.0.waits_for_commit(answers))
    }
}
