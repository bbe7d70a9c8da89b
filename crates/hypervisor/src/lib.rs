//! The hypervisor interface of the agent, and a simulated hypervisor.
//!
//! Owns the driver trait, the domain metadata and the simulated driver. A driver carries out one
//! step at a time and must never decide the desired state: that is the agent's task. Steps are
//! idempotent, because the agent repeats them after a crash.

mod atomic;
mod definition;
mod driver;
mod error;
pub mod simulated;
mod xml;

pub use atomic::{list_whole, write_atomically, write_exchanging};
pub use definition::Definition;
pub use driver::{
    ConsoleFuture, DefinedDomain, DomainState, DriverFuture, FoundDisks, HeldVolume, Hypervisor,
    HypervisorInfo, Mdevs, MigrationState, PluggedVolumes,
};
pub use error::{Error, Step};
pub use xml::NAMESPACE;
