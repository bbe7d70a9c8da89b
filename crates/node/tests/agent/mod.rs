//! The agent against a control plane in memory.

pub mod control;
mod fragile;
mod host;

mod crash;
mod lifecycle;
mod networks;
mod recovery;
mod trouble;
