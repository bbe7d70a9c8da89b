//! Judges the APIs by upstream's documents, recordings, random requests and rules.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod compute;
mod fuzz;
mod policy;
