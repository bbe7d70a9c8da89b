//! Compares the engine with a naive reference on random forests, and covers particular cases.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod build;
mod explain;
mod joint;
mod order;
mod random;
mod reference;
mod scale;
mod semantics;
mod usage;
