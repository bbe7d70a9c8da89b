//! Tests of the agent with a controller in memory.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod agent;
mod devices;
mod health;
