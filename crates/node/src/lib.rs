//! The node side: makes a host look like its documents say, and says what it saw.
//!
//! Owns the agent, the topology files and the simulated host. The agent knows only the traits
//! `Sysfs`, `Hypervisor`, `Network` and `ControlPlane`, so real and simulated hosts run the same code. It must
//! never pick a device: a document names each one.

mod agent;
mod error;
mod network;
mod simulated;
mod tools;
pub mod topology;

pub use kilonova_devices as devices;

pub use agent::{Node, Parts, Settings};
pub use error::Error;
pub use network::{Lacking, Making, Network, Wanted};
pub use simulated::SimulatedSysfs;
pub use tools::{Commands, Doing, Function, Load, Tools, Unfit};
