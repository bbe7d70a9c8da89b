//! Compares our responses with upstream's OpenAPI documents.
//!
//! For tests only: the services must not depend on it. The documents come with the crate
//! `openstack_types` and describe the requests and responses of each operation and microversion.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

pub mod coverage;
pub mod document;
pub mod invalid_bodies;
mod yaml;

pub use coverage::Coverage;
pub use document::{Document, Operation, Side};
