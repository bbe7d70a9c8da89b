//! The documents that travel between the control plane and a node.
//!
//! They are level-triggered: a document says what should be ("this domain, running, with these
//! devices, generation 7"), never what to do. A node may miss any number of them and be right after
//! the next. One-shot verbs are documents with an operation id: the node remembers the last id it
//! carried out. A node never picks a device; a document names each.
//!
//! This crate must never know how either side keeps or carries out what it says.

mod control;
mod device;
mod disk;
mod document;
mod filter;
mod guest;
mod interface;
mod join;
mod machine;
mod observation;
mod order;
mod question;

pub use control::{Answer, ControlPlane, Refusal};
pub use device::{
    Attachment, Deployable, Device, DeviceKind, HandleSlot, Health, Registration, Session,
    VARIANT_LIVE_MIGRATION, VGPU_LIVE_MIGRATION,
};
pub use disk::DiskFormat;
pub use document::{
    Batch, Boot, Departure, Desired, Document, Domain, Peer, Power, Rescue, RescueDevice, Verb,
};
pub use filter::{Direction, Filters, Group, Members, Pair, PortFilter, Prefix, Remote, Rule};
pub use guest::{Guest, Key};
pub use interface::{Address, Interface};
pub use join::{Clock, Credential, Join, Renewal, Revocations, RevokedHost};
pub use machine::{Bus, Firmware, Machine, Medium, SecureBoot, Topology};
pub use observation::{Observation, Outcome, Phase, Progress};
pub use order::{BY_OPERATOR, Carried, Chunk, End, ON_RELEASE, Order, THE_NODE, Task};
pub use question::{DiskUsage, Question, Reply, Said, Topic, Usage};

/// Whether a value need not be said.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
