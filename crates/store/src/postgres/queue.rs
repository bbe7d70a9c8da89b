//! The statements of a transaction that have not been sent yet, in order.
//!
//! Statements whose answer nobody needs yet wait here, and so do the statements that only control the
//! transaction. They are sent together with the next statement whose answer is needed, in one round
//! trip. It must never send anything itself.

use tokio_postgres::Statement;

use crate::Value;

/// The name of every savepoint; an inner one hides the outer ones.
const SAVEPOINT: &str = "SAVEPOINT attempt";
const RELEASE: &str = "RELEASE SAVEPOINT attempt";
const RESTORE: &str = "ROLLBACK TO SAVEPOINT attempt; RELEASE SAVEPOINT attempt";

/// A statement that waits to be sent.
pub(super) enum Request {
    /// Statements without parameters that control the transaction.
    Control(String),
    /// The beginning of a savepoint, with its number.
    Savepoint(u64),
    /// The end of the innermost savepoint.
    Release,
    /// A statement of a service.
    Statement(Call),
}

/// A statement of a service with its parameters.
pub(super) struct Call {
    /// Its number, under which its answer is kept.
    pub number: u64,
    pub plan: Plan,
    pub params: Vec<Value>,
    pub wants: Wants,
}

/// A statement, prepared or not.
pub(super) enum Plan {
    Prepared(Statement),
    /// Its text, as the services write it.
    Text(String),
}

/// The part of an answer that the caller needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wants {
    Nothing,
    Changed,
    Rows,
}

#[derive(Default)]
pub(super) struct Queue {
    requests: Vec<Request>,
    last: u64,
}

impl Queue {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// True if a statement of a service waits.
    pub(super) fn has_calls(&self) -> bool {
        self.requests.iter().any(|request| matches!(request, Request::Statement(_)))
    }

    pub(super) fn clear(&mut self) {
        self.requests.clear();
    }

    /// Adds a statement that controls the transaction.
    pub(super) fn control(&mut self, sql: &str) {
        self.requests.push(Request::Control(sql.to_owned()));
    }

    /// Adds a statement and returns its number.
    pub(super) fn call(&mut self, plan: Plan, params: Vec<Value>, wants: Wants) -> u64 {
        let number = self.number();
        self.requests.push(Request::Statement(Call { number, plan, params, wants }));
        number
    }

    /// Begins a savepoint and returns its number.
    pub(super) fn savepoint(&mut self) -> u64 {
        let number = self.number();
        self.requests.push(Request::Savepoint(number));
        number
    }

    /// The position of a savepoint that was not sent.
    fn position(&self, savepoint: u64) -> Option<usize> {
        let is_it = |request: &Request| matches!(request, Request::Savepoint(n) if *n == savepoint);
        self.requests.iter().rposition(is_it)
    }

    /// Ends a savepoint. One that was not sent is not needed: its statements fail, if they do, after
    /// its end.
    pub(super) fn release(&mut self, savepoint: u64) {
        match self.position(savepoint) {
            Some(position) => drop(self.requests.remove(position)),
            None => self.requests.push(Request::Release),
        }
    }

    /// Removes the statements since a savepoint, and restores it unless it was not sent. Returns
    /// whether it was sent.
    pub(super) fn restore(&mut self, savepoint: u64) -> bool {
        if let Some(position) = self.position(savepoint) {
            self.requests.truncate(position);
            return false;
        }
        self.requests.clear();
        self.control(RESTORE);
        true
    }

    /// Takes all statements.
    pub(super) fn take(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.requests)
    }

    /// Takes the statements before the first one of a service.
    pub(super) fn take_control(&mut self) -> Vec<Request> {
        let is_call = |request: &Request| matches!(request, Request::Statement(_));
        let end = self.requests.iter().position(is_call).unwrap_or(self.requests.len());
        self.requests.drain(..end).collect()
    }

    /// The statements that are not prepared yet.
    pub(super) fn unprepared(&self) -> impl Iterator<Item = &str> {
        self.requests.iter().filter_map(|request| match request {
            Request::Statement(Call { plan: Plan::Text(sql), .. }) => Some(sql.as_str()),
            Request::Statement(_)
            | Request::Control(_)
            | Request::Savepoint(_)
            | Request::Release => None,
        })
    }

    /// Replaces texts by the prepared statements that `find` returns.
    pub(super) fn prepared(&mut self, find: impl Fn(&str) -> Option<Statement>) {
        for request in &mut self.requests {
            if let Request::Statement(Call { plan, .. }) = request
                && let Plan::Text(sql) = plan
                && let Some(statement) = find(sql)
            {
                *plan = Plan::Prepared(statement);
            }
        }
    }
}

impl Request {
    /// The text of a statement that only controls the transaction.
    fn control(&self) -> Option<&str> {
        match self {
            Self::Control(sql) => Some(sql),
            Self::Savepoint(_) => Some(SAVEPOINT),
            Self::Release => Some(RELEASE),
            Self::Statement(_) => None,
        }
    }

    /// The text of the control statements at the beginning, and their number.
    pub(super) fn leading_control(requests: &[Self]) -> (String, usize) {
        let texts: Vec<&str> = requests.iter().map_while(Self::control).collect();
        (texts.join("; "), texts.len())
    }

    /// True if a savepoint begins here that does not end here.
    pub(super) fn leave_savepoint(requests: &[Self]) -> bool {
        let depth = requests.iter().fold(0_usize, |depth, request| match request {
            Self::Savepoint(_) => depth + 1,
            Self::Release => depth.saturating_sub(1),
            Self::Control(_) | Self::Statement(_) => depth,
        });
        depth > 0
    }
}
