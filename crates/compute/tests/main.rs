//! The tests of this crate over its API, with simulated hosts and a database.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod common;
mod machines;
mod neutron;
mod resources;
mod servers;

use servers::kit;
