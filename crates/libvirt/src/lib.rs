//! Guests on a real host, by libvirt.
//!
//! Owns the connection to libvirtd, the XML of domains, the mediated devices that libvirt keeps, and
//! the sending of running guests to other hosts. It must never decide what should be: it carries out
//! steps, each of which may be repeated. libvirtd may be restarted or hang under it; a step then fails
//! with words that say so, and guests run on.
//!
//! `sys` is the only module with `unsafe`: it calls what the `virt` crate has no words for.

mod config;
mod connection;
mod driver;
mod files;
mod job;
mod leave;
mod life;
mod look;
mod place;
mod pool;
mod probe;
mod sys;
mod tls;
mod xml;

pub use config::{Config, CpuMode, TimeoutAction, VirtType};
pub use driver::Driver;
pub use look::look;
pub use probe::Versions;
pub use tls::lacking as lacking_certificates;
