//! The tests of this crate that need a database.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod attempts;
mod commit;
mod deferred;
mod full;
mod group;
mod invisible_conflicts;
mod limits;
mod postgres;
mod readers;
mod statistics;
mod times;
mod tls;
mod turns;
mod url;
mod visit;
