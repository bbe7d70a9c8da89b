//! Tests of the real `kilonova serve`: a process, reached over sockets, on SQLite and, if
//! `KILONOVA_TEST_POSTGRES` names a server, on PostgreSQL.
//!
//! Each crate tests in process as much as it can. These tests cover what only the whole program shows:
//! the command line, files, signals, logs, sockets, and clear answers to invalid input everywhere.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod kit;

mod front;
mod http;
mod identity;
mod input;
mod placement;
mod process;
