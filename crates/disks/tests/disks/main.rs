//! Disks as files, created by the real programs. Tests whose program is not installed are skipped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod cache;
mod host;
mod made;
mod peer;
mod refused;
