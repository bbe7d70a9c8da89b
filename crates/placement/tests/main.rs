//! The tests of this crate that need a database: one program, so that it is linked once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod allocations;
mod candidates;
mod common;
mod concurrency;
mod drain;
mod fuzz_bodies;
mod fuzz_queries;
mod ledger;
mod move_down;
mod policy;
mod providers;
mod refusals;
mod replicas;
