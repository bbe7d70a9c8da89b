//! The pages without a browser: every service on each database, two simulated hosts, and a client that keeps
//! cookies and sends forms as a browser does.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

mod actions;
mod browser;
mod bulk;
mod changes;
mod cloud;
mod events;
mod explain;
mod floor;
mod launch;
mod login;
mod resources;
mod servers;
