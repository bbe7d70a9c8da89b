//! Durable operations: what somebody asked to be done to a server, how far it is, and what came
//! of it.
//!
//! An operation is a row, not a task: it is begun in the transaction that accepts the request, and
//! each step is one transaction that reads the row, changes what the step changes and moves the
//! row on. A crash therefore falls between steps, never inside one, and there is nothing to undo
//! in memory. A subject has at most one open operation, by a unique key; whoever starts a second
//! one either cancels the first in the same transaction or is refused.
//!
//! Operations and their events are also what Nova shows as instance actions.
//!
//! This crate must never know what the steps do: their names and data belong to the service.

mod error;
mod journal;
mod migrations;
mod operation;
mod statements;

pub use error::Error;
pub use journal::{
    advance, begin, event, events, finish, history, one, open_by_kind, open_of, open_since, purge,
    record, redate,
};
pub use migrations::MIGRATIONS;
pub use operation::{Event, NewOperation, Operation, Outcome};
pub use statements::STATEMENTS;
