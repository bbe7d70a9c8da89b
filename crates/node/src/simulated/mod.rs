//! The kernel's side of a simulated host.
//!
//! Owns the pretended sysfs. Nothing outside may tell it from a real one through the `Sysfs` trait.

mod faults;
mod loaded;
mod network;
mod render;
mod state;
mod sysfs;
mod tools;

pub(crate) use network::Paper;
pub use sysfs::SimulatedSysfs;
pub(crate) use tools::Pretence;
