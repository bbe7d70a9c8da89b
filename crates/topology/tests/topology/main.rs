//! Nova's own cases of requests, packing and fitting as tables, and random boots against a full search.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod build;
mod cells;
mod devices;
mod guests;
mod lists;
mod order;
mod packing;
mod random;
mod refusals;
mod split;
mod usage;
