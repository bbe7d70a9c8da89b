//! Guests on a real host, run by libvirt.
//!
//! Owns the connection to libvirtd, domain XML, libvirt's persistent mediated devices, and outgoing
//! live migration. It carries out idempotent steps and must never decide the desired state. If
//! libvirtd restarts or hangs, a step fails with an error and guests keep running.
//!
//! `sys` is the only module with `unsafe`: it calls functions that the `virt` crate does not wrap.

mod config;
mod connection;
mod driver;
mod files;
mod inspect;
mod job;
mod migrate_out;
mod numa;
mod pool;
mod probe;
mod state;
mod sys;
mod tls;
mod xml;

pub use config::{CpuMode, LibvirtConfig, TimeoutAction, VirtType};
pub use driver::Driver;
pub use inspect::inspect;
pub use probe::Versions;
pub use tls::missing_certificates;
