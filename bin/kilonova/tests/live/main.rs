//! The real `kilonova serve`, started as a process and spoken to over sockets, on SQLite and, when
//! `KILONOVA_TEST_POSTGRES` names a server, on PostgreSQL.
//!
//! What one crate can test in process is tested there; here is what only the whole shows: the
//! command line, files, signals, logs, sockets, and that bad input is answered clearly everywhere.

mod kit;

mod front;
mod http;
mod identity;
mod input;
mod placement;
mod process;
