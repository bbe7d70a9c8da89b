//! The kernel of a simulated host.
//!
//! Owns the simulated sysfs. Through the `Sysfs` trait it is indistinguishable from a real one.

mod faults;
mod loaded;
mod network;
mod render;
mod state;
mod sysfs;
mod tools;
mod volumes;

pub(crate) use network::RecordedNetwork;
pub use sysfs::SimulatedSysfs;
pub(crate) use tools::SimulatedTools;
pub(crate) use volumes::SimulatedVolumes;
