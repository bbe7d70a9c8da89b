//! The kernel's side of a simulated host.
//!
//! Owns the pretended sysfs. Nothing outside may tell it from a real one through the `Sysfs` trait.

mod faults;
mod render;
mod state;
mod sysfs;

pub use sysfs::SimulatedSysfs;
