//! The agent against a control plane of the test's own.

pub mod control;
mod fragile;
mod host;

mod crash;
mod lifecycle;
mod networks;
mod recovery;
mod trouble;
