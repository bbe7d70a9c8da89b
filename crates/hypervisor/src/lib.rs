//! What a node asks of a hypervisor, and a hypervisor that only pretends.
//!
//! Owns the driver trait, the domain XML and the simulated driver. A driver carries out one step at a
//! time and must never decide what should be: that is the node's work. Every step may be repeated
//! after a crash, so each succeeds when what it should bring about is so already.

mod atomic;
mod definition;
mod driver;
mod error;
pub mod simulated;
mod xml;

pub use atomic::{list_whole, write_atomically};
pub use definition::Definition;
pub use driver::{About, Answer, Found, Hypervisor, Life, Mdevs, Transfer};
pub use error::{Error, Step};
pub use xml::NAMESPACE;
