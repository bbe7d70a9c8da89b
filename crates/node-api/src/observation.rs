//! What was seen.

use kilonova_ids::ServerId;
use serde::{Deserialize, Serialize};

/// One server as the node left it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// Whose.
    pub server: ServerId,
    /// The document generation that was carried out (or tried). An observation of an older
    /// generation than the document's current one is kept but moves nothing. 0 for a guest that was
    /// found at a start and that no document names: it is left as it is until one does.
    pub generation: i64,
    /// What came of it.
    pub outcome: Outcome,
    /// Whether this is how a guest, which once was as the document says, was found when the node
    /// started: nothing was done to it since. Its host may have been restarted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_start: bool,
}

impl Observation {
    /// What came of a document.
    pub fn new(server: ServerId, generation: i64, outcome: Outcome) -> Self {
        Self { server, generation, outcome, at_start: false }
    }
}

/// What a node is at, where that takes long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It copies the disk for an image.
    Copying,
    /// It sends the copy to the image service.
    Sending,
    /// The disks are there; it makes the guest.
    Spawning,
}

/// The result of carrying a document out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The guest runs with exactly the document's devices.
    Running,
    /// The guest is in memory with exactly the document's devices, its processors stopped.
    Paused,
    /// The guest's memory is on disk; exactly the document's devices are kept for it.
    Suspended,
    /// The guest is defined with exactly the document's devices and is shut off.
    Stopped,
    /// Everything is there with exactly the document's devices, and waits for the guest.
    Ready,
    /// It is being made so; this is said now and then, and may be lost.
    Working {
        /// What the node is at.
        phase: Phase,
    },
    /// The guest is leaving; this is said now and then, and more is to come.
    Departing(Progress),
    /// The guest runs on the other host and no longer here.
    Departed,
    /// Nothing of it is on the host: no domain, no disk, no mediated device.
    Absent,
    /// It could not be made so. What was half made is undone, as far as the node can.
    Failed {
        /// The step that failed: `create_mdev`, `network`, `image`, `define`, `start`, `reboot`, `stop`,
        /// `destroy`, `pause`, `unpause`, `suspend`, `resume`, `snapshot`, `crash_dump`.
        step: String,
        /// Why, for people.
        message: String,
    },
}

/// What of a running guest has gone over to the other host, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Memory in all.
    pub memory_total: i64,
    /// Memory that has gone over.
    pub memory_processed: i64,
    /// Memory that is left.
    pub memory_remaining: i64,
    /// Disks in all.
    pub disk_total: i64,
    /// Of the disks, what has gone over.
    pub disk_processed: i64,
    /// Of the disks, what is left.
    pub disk_remaining: i64,
}
