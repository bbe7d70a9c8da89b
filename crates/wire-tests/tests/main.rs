//! Checks the APIs against upstream's documents, recordings and policy rules, and with random
//! requests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod compute;
mod fuzz;
mod metadefs;
mod policy;
