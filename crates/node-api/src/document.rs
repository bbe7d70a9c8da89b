//! What should be.

use kilonova_ids::{ImageId, OperationId, ServerId};
use serde::{Deserialize, Serialize};

use crate::{
    Attachment, Bus, Filters, Guest, Interface, Machine, Medium, Order, Question, is_default,
};

/// The desired state of one server on one host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Whose.
    pub server: ServerId,
    /// Grows with every change on the host; a node acts on the newest only.
    pub generation: i64,
    /// What should be.
    pub desired: Desired,
}

/// Whether the server should exist on the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Desired {
    /// It should, like this.
    Present(Box<Domain>),
    /// It should not: destroy the domain, remove its disk and its mediated devices.
    Absent,
}

/// A guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Domain {
    /// `instance-0000001a`.
    pub name: String,
    /// What the user calls it.
    pub display_name: String,
    /// Processors.
    pub vcpus: i64,
    /// Memory, MiB.
    pub memory_mb: i64,
    /// Disks, if any.
    pub boot: Boot,
    /// What the machine is like beyond its size.
    #[serde(default, skip_serializing_if = "is_default")]
    pub machine: Machine,
    /// What the guest is told of itself.
    #[serde(default, skip_serializing_if = "is_default")]
    pub guest: Guest,
    /// Running or not.
    pub power: Power,
    /// The last one-shot verb; carried out once per operation id.
    pub verb: Option<(OperationId, Verb)>,
    /// The devices, whole.
    pub devices: Vec<Attachment>,
    /// Its connections to networks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// The host that has the guest, or its disks; they are fetched from there before it is first
    /// defined, as far as the guest does not bring them itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Peer>,
    /// Where the guest is to go. Without it a departure that is under way is called off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub departure: Option<Box<Departure>>,
    /// What the guest is started from in place of its own disk, to be mended; that one is attached
    /// beside it and keeps what is on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rescue: Option<Rescue>,
}

/// A guest that is being mended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rescue {
    /// The image it starts from.
    pub image: Option<ImageId>,
    /// How that image is plugged in, where it says so: the guest's own disks stay in their places,
    /// and it comes behind them. Without, it takes the place of the root disk, which comes second.
    #[serde(default, skip_serializing_if = "is_default")]
    pub device: Option<RescueDevice>,
    /// The machine while it is being mended.
    #[serde(default, skip_serializing_if = "is_default")]
    pub machine: Machine,
}

/// How a disk to be mended from is plugged in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RescueDevice {
    /// What it looks like (`hw_rescue_device`).
    pub medium: Medium,
    /// What it is plugged into, where that is said (`hw_rescue_bus`).
    #[serde(default, skip_serializing_if = "is_default")]
    pub bus: Option<Bus>,
}

/// Where the guest boots from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    /// The image; its bytes come from the image service.
    pub image: Option<ImageId>,
    /// Root disk, GiB.
    pub root_gb: i64,
    /// Ephemeral disk, GiB.
    pub ephemeral_gb: i64,
    /// Swap, MiB.
    pub swap_mb: i64,
    /// The rebuild that the disks are of. Disks of another one are thrown away and made anew, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuilt: Option<OperationId>,
}

/// Whether a guest runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Power {
    /// It runs.
    On,
    /// It is in memory, with its processors stopped.
    Paused,
    /// Its memory is on disk.
    Suspended,
    /// It is defined and shut off.
    Off,
    /// All of it is there but the guest, which comes from another host.
    Incoming,
    /// It is as it is. A departure that is under way is called off; nothing else is done, and what
    /// the guest does is said. Where there is no domain, that is [`Absent`](crate::Outcome::Absent).
    AsIs,
}

/// Another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its name.
    pub host: String,
    /// Its address.
    pub address: String,
}

/// A guest that is to leave, running, for a host where all is ready for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departure {
    /// Where to.
    pub to: Peer,
    /// For each of its devices the one that takes its place there.
    pub devices: Vec<(Attachment, Attachment)>,
    /// Whether it is to arrive even if the guest has to stand still for a while.
    pub force: bool,
}

/// What is done once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Ask the guest to restart; hard after a while.
    RebootSoft,
    /// Destroy, define anew, start.
    RebootHard,
    /// Send what is on the root disk to the image service, once the guest is as wanted.
    Snapshot {
        /// The image that waits for it.
        image: ImageId,
    },
    /// Interrupt the guest so that it writes down what it was doing.
    CrashDump,
}

/// Documents newer than what was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// The newest generation of the host; the next `since`.
    pub generation: i64,
    /// Whether these are all documents of the host (`since = 0`): a domain that is in none of
    /// them is to be reported, not destroyed.
    pub complete: bool,
    /// The documents, oldest first.
    pub documents: Vec<Document>,
    /// What is to be done to devices, oldest first; with `complete`, all that is not done yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orders: Vec<Order>,
    /// What somebody waits to hear about guests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<Question>,
    /// The security groups of the host's guests, whole, where they or the guests have changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filters: Option<Box<Filters>>,
}
