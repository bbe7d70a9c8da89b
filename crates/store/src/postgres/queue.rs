//! The statements of a transaction that have not been sent yet, in order.
//!
//! The queue holds statements whose answers are not needed yet, and statements that only control
//! the transaction. They are sent together with the next statement whose answer is needed, in one
//! round trip. This module must never send anything itself.
//!
//! Each statement belongs to the attempt that was innermost when it was added. The attempt may end
//! before its statement is sent. The failure of such a statement then belongs to no open savepoint.

use tokio_postgres::Statement;

use crate::Value;

/// A statement that waits to be sent.
pub(super) enum Request {
    /// Statements without parameters that control the transaction.
    Control(String),
    /// The beginning of a savepoint at this depth; the outermost has depth 1.
    Savepoint(usize),
    /// The end of the savepoint at this depth.
    Release(usize),
    /// A statement of a service.
    Statement(Call),
    /// A statement that runs after the transaction and is sent together with its end.
    After(String),
}

/// A service's statement with its parameters.
pub(super) struct Call {
    /// Its number, under which its answer is kept.
    pub number: u64,
    /// The number of its attempt; 0 outside of any.
    pub attempt: u64,
    pub plan: Plan,
    pub params: Vec<Value>,
    pub wants: Wants,
    /// False for a statement that changes nothing.
    pub writes: bool,
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
    /// The numbers of the open attempts, from the outermost.
    open: Vec<u64>,
    last: u64,
}

impl Queue {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The innermost open attempt; 0 outside of any.
    fn attempt(&self) -> u64 {
        self.open.last().copied().unwrap_or_default()
    }

    fn calls(&self) -> impl Iterator<Item = &Call> {
        self.requests.iter().filter_map(|request| match request {
            Request::Statement(call) => Some(call),
            Request::Control(_)
            | Request::Savepoint(_)
            | Request::Release(_)
            | Request::After(_) => None,
        })
    }

    /// True if a waiting statement changes rows.
    pub(super) fn writes(&self) -> bool {
        self.calls().any(|call| call.writes)
    }

    /// True if a waiting statement must run even though its answer was not read: a statement that
    /// changes rows, one that was deferred, or one whose answer is among `answers`.
    pub(super) fn is_needed(&self, answers: &[u64]) -> bool {
        self.calls().any(|call| {
            call.writes || call.wants == Wants::Nothing || answers.contains(&call.number)
        })
    }

    /// Drops the statements but keeps the open attempts.
    pub(super) fn clear(&mut self) {
        self.requests.clear();
    }

    /// Clears everything, for a new transaction.
    pub(super) fn reset(&mut self) {
        self.requests.clear();
        self.open.clear();
    }

    /// Adds a statement that controls the transaction.
    pub(super) fn control(&mut self, sql: &str) {
        self.requests.push(Request::Control(sql.to_owned()));
    }

    /// Adds a statement that runs after the transaction has ended.
    pub(super) fn after(&mut self, sql: String) {
        self.requests.push(Request::After(sql));
    }

    /// Adds a statement and returns its number.
    pub(super) fn call(
        &mut self,
        plan: Plan,
        params: Vec<Value>,
        wants: Wants,
        writes: bool,
    ) -> u64 {
        let (number, attempt) = (self.number(), self.attempt());
        self.requests.push(Request::Statement(Call {
            number,
            attempt,
            plan,
            params,
            wants,
            writes,
        }));
        number
    }

    /// Begins an attempt with a savepoint.
    pub(super) fn savepoint(&mut self) {
        let number = self.number();
        self.open.push(number);
        self.requests.push(Request::Savepoint(self.open.len()));
    }

    /// The position of the innermost attempt's savepoint, if it was not sent. A savepoint that ends
    /// before it is sent leaves the queue, so at most one of each depth waits.
    fn position(&self) -> Option<usize> {
        let depth = self.open.len();
        let is_it = |request: &Request| matches!(request, Request::Savepoint(at) if *at == depth);
        self.requests.iter().rposition(is_it)
    }

    /// Ends the innermost attempt. Drops its savepoint if that was not sent: the attempt's
    /// statements are then sent, and may fail, only after its end.
    pub(super) fn release(&mut self) {
        match self.position() {
            Some(position) => drop(self.requests.remove(position)),
            None => self.requests.push(Request::Release(self.open.len())),
        }
        self.open.pop();
    }

    /// Ends the innermost attempt and removes its statements. Rolls back to its savepoint if that
    /// was sent. Returns true if the savepoint was sent.
    pub(super) fn restore(&mut self) -> bool {
        let (position, depth) = (self.position(), self.open.len());
        self.open.pop();
        if let Some(position) = position {
            self.requests.truncate(position);
            return false;
        }
        self.requests.clear();
        // This also ends inner savepoints whose release was not sent.
        let name = savepoint(depth);
        self.control(&format!("ROLLBACK TO SAVEPOINT {name}; RELEASE SAVEPOINT {name}"));
        true
    }

    /// True if restoring the innermost open savepoint undoes the failure of a statement, because
    /// the statement belongs to that attempt.
    pub(super) fn can_restore(&self, failed: &Request) -> bool {
        match failed {
            Request::Statement(call) => call.attempt != 0 && call.attempt == self.attempt(),
            Request::Control(_)
            | Request::Savepoint(_)
            | Request::Release(_)
            | Request::After(_) => false,
        }
    }

    /// Like [`Queue::can_restore`], for all waiting statements.
    pub(super) fn can_restore_all(&self) -> bool {
        self.requests.iter().all(|request| self.can_restore(request))
    }

    /// Takes all statements.
    pub(super) fn take(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.requests)
    }

    /// Takes the statements that precede the first service statement.
    pub(super) fn take_control(&mut self) -> Vec<Request> {
        let is_call = |request: &Request| matches!(request, Request::Statement(_));
        let end = self.requests.iter().position(is_call).unwrap_or(self.requests.len());
        self.requests.drain(..end).collect()
    }

    /// The statements that are not prepared yet.
    pub(super) fn unprepared(&self) -> impl Iterator<Item = &str> {
        self.calls().filter_map(|call| match &call.plan {
            Plan::Text(sql) => Some(sql.as_str()),
            Plan::Prepared(_) => None,
        })
    }

    /// Replaces the text of each statement with the prepared statement that `find` returns, if any.
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

/// The name of the savepoint at a depth. Each depth has its own name: when an outer savepoint is
/// restored, the server may still have an inner one whose release was not sent, or not run because
/// of an error.
fn savepoint(depth: usize) -> String {
    format!("attempt_{depth}")
}

impl Request {
    /// The text of a statement that only controls the transaction.
    fn control(&self) -> Option<String> {
        match self {
            Self::Control(sql) => Some(sql.clone()),
            Self::Savepoint(depth) => Some(format!("SAVEPOINT {}", savepoint(*depth))),
            Self::Release(depth) => Some(format!("RELEASE SAVEPOINT {}", savepoint(*depth))),
            Self::Statement(_) | Self::After(_) => None,
        }
    }

    /// The text of the control statements at the beginning, and their number.
    pub(super) fn leading_control(requests: &[Self]) -> (String, usize) {
        let texts: Vec<String> = requests.iter().map_while(Self::control).collect();
        (texts.join("; "), texts.len())
    }
}
