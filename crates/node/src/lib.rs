//! The agent: makes a host match its documents and reports what it observes.
//!
//! Owns the agent, the topology files and the simulated host. The agent depends only on the traits `Sysfs`,
//! `MigDriver`, `Hypervisor`, `Tools`, `Network`, `Volumes` and `ControlPlane`, so real and simulated hosts
//! run the same code. It must never choose a device: the documents name them.

mod agent;
mod error;
mod metadata;
mod network;
mod simulated;
mod tools;
pub mod topology;
mod volumes;

pub use kilonova_devices as devices;

pub use agent::{Node, Parts, Settings};
pub use error::Error;
pub use metadata::{
    GuestAnswer, GuestFuture, GuestMethod, GuestRequest, GuestRequests, GuestStatus,
    MetadataSettings,
};
pub use network::{
    DesiredNetworks, Network, NetworkFailures, NetworkFuture, ResumeFuture, UnplugFuture,
};
pub use simulated::SimulatedSysfs;
pub use tools::{Commands, Function, Load, ToolError, ToolFuture, Tools};
pub use volumes::{
    DisconnectFuture, StuckVolume, VolumeFuture, VolumeRecord, VolumeRecords, Volumes,
};
