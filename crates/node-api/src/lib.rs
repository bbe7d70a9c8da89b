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
mod document;
mod observation;
mod order;
mod question;

pub use control::{Answer, ControlPlane, Refusal};
pub use device::{
    Attachment, Deployable, Device, DeviceKind, HandleSlot, Health, Registration, Session,
};
pub use document::{Batch, Boot, Departure, Desired, Document, Domain, Peer, Power, Rescue, Verb};
pub use observation::{Observation, Outcome, Progress};
pub use order::{BY_OPERATOR, Carried, Chunk, End, ON_RELEASE, Order, THE_NODE, Task};
pub use question::{DiskUsage, Question, Reply, Said, Topic, Usage};
