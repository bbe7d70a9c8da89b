//! What should be.

use kilonova_ids::{ImageId, OperationId, ServerId};
use serde::{Deserialize, Serialize};

use crate::{Attachment, Order};

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
    /// Running or not.
    pub power: Power,
    /// The last one-shot verb; carried out once per operation id.
    pub verb: Option<(OperationId, Verb)>,
    /// The devices, whole.
    pub devices: Vec<Attachment>,
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
}

/// Whether a guest runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Power {
    /// It runs.
    On,
    /// It is defined and shut off.
    Off,
}

/// What is done once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Ask the guest to restart; hard after a while.
    RebootSoft,
    /// Destroy, define anew, start.
    RebootHard,
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
}
