//! The agent with a controller in memory.

pub mod control;
mod crashing_host;
mod deaths;
mod host;

mod crash;
mod failures;
mod lifecycle;
mod metadata;
mod mig;
mod networks;
mod recovery;
mod volumes;
