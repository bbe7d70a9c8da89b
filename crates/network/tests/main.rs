//! The tests of this crate that need a database: one program, so that it is linked once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod bounds;
mod http;
mod kit;
mod policy;
mod routers;
mod security;
