//! The journal of durable operations: the request, the step it has reached, and how it ended.
//!
//! An operation is a row, not a task. The transaction that accepts a request begins it, and each step
//! is one transaction that reads the row, makes its changes and advances the row. A crash therefore
//! falls between two steps, never inside one, and no memory has to be rolled back. A unique key allows
//! each server one open operation. A second one is refused, unless its transaction cancels the first.
//!
//! The compute API shows operations and their events as instance actions.
//!
//! [`lease`] grants one controller of the cloud the work that only one may do at a time.
//!
//! This crate stores kinds, steps and data, and must never know their meaning: they belong to the
//! service.

mod error;
mod journal;
pub mod lease;
mod migrations;
mod operation;
mod statements;

pub use error::Error;
pub use journal::{
    advance, all_opened, ask_begin, ask_open_of_some, begin, begin_first, begun, cancel,
    end_events, event, events, expect_history, expect_open_of, fail_recorded, finish, history, one,
    open_by_kind, open_of, open_since, purge, record, redate,
};
pub use lease::Lease;
pub use migrations::MIGRATIONS;
pub use operation::{Event, NewOperation, Operation, Outcome};
pub use statements::STATEMENTS;
