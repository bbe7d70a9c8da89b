//! The tests of the crate.

#![allow(clippy::expect_used, reason = "a failed expectation fails the test")]

mod choices;
mod islands;
mod mig;
