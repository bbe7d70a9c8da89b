//! Observations: the actual state.

use kilonova_ids::ServerId;
use serde::{Deserialize, Serialize};

use crate::{GuestVerb, VolumeState};

/// The state of one server after the agent acted on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// The server.
    pub server: ServerId,
    /// The document generation that was carried out or attempted. An observation of an older
    /// generation is stored but triggers nothing. 0 for a guest that was found at start and has no
    /// document: it stays unchanged until it gets one.
    pub generation: i64,
    /// The result.
    pub outcome: Outcome,
    /// True if the guest had reached its desired state, but was found in this state when the agent
    /// started. The host may have rebooted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_start: bool,
    /// The state of each volume of a guest that matches its document. A volume that is not listed is detached and
    /// disconnected. `None` means that volumes are not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<VolumeState>>,
    /// The machine type that this host or an earlier one chose for the guest, and that its next definition keeps. `None` if
    /// the image names it, or if the agent could not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_type: Option<String>,
}

impl Observation {
    /// The result of a document.
    pub fn new(server: ServerId, generation: i64, outcome: Outcome) -> Self {
        Self { server, generation, outcome, at_start: false, volumes: None, machine_type: None }
    }
}

/// The phase of a long operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Copying the disk for a snapshot.
    Copying,
    /// Uploading the copy to the image service.
    Sending,
    /// The disks exist; the guest is being created.
    Spawning,
}

/// The result of carrying out a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The guest runs with exactly the document's devices.
    Running,
    /// The guest is in memory with exactly the document's devices and its vCPUs stopped.
    Paused,
    /// The guest's memory is saved to disk; exactly the document's devices are reserved for it.
    Suspended,
    /// The guest is defined with exactly the document's devices and is shut off.
    Stopped,
    /// Everything is ready for an incoming live migration, with exactly the document's devices.
    Ready,
    /// The agent is working on it. Sent from time to time; may be lost.
    Working {
        /// The phase.
        phase: Phase,
    },
    /// A live migration to another host is in progress. Sent from time to time; more observations
    /// follow.
    #[serde(rename = "departing")]
    MigratingOut(Progress),
    /// The guest runs on the other host and no longer here.
    #[serde(rename = "departed")]
    MigratedOut,
    /// Nothing of the server is on the host: no domain, no disk, no mediated device.
    Absent,
    /// The desired state could not be reached. Partial changes are rolled back as far as possible.
    Failed {
        /// The step that failed: `create_mdev`, `network`, `volume`, `image`, `define`, `start`,
        /// `reboot`, `stop`, `destroy`, `pause`, `unpause`, `suspend`, `resume`, `snapshot`, `crash_dump`, `removed`,
        /// `no_disk`, `rebuilt`.
        step: String,
        /// The reason.
        message: String,
    },
}

/// The step of a snapshot in observations.
pub const SNAPSHOT_STEP: &str = "snapshot";
/// The step that powers a guest off at once. If it fails, the guest still runs.
pub const DESTROY_STEP: &str = "destroy";

/// The step in observations of a document from before the removal of its guest: the host has carried out the later
/// document that requested the removal, and the controller has lost that document.
pub const REMOVED_STEP: &str = "removed";

/// The step in observations of a document that requires existing disks, on a host that has neither the guest nor its root
/// disk.
pub const NO_DISK_STEP: &str = "no_disk";

/// The step in observations of a document from before a rebuild of its guest: the host has carried out the later document
/// that requested the rebuild, and the controller has lost that document. The guest and its disks stay as they are.
pub const REBUILT_STEP: &str = "rebuilt";

impl Outcome {
    /// True if the host failed because it has neither the guest nor its root disk, and may not create them.
    pub fn lacks_guest(&self) -> bool {
        matches!(self, Self::Failed { step, .. } if step == REMOVED_STEP || step == NO_DISK_STEP)
    }

    /// True if the host failed because it has a later rebuild of the guest, which follows no document from before it.
    pub fn keeps_later_rebuild(&self) -> bool {
        matches!(self, Self::Failed { step, .. } if step == REBUILT_STEP)
    }

    /// True for a failed snapshot or verb of the driver, which leaves the guest unchanged.
    pub fn leaves_guest(&self) -> bool {
        let harmless = |step: &str| {
            step == SNAPSHOT_STEP || GuestVerb::ALL.iter().any(|verb| verb.as_str() == step)
        };
        matches!(self, Self::Failed { step, .. } if harmless(step))
    }
}

/// The progress of a live migration, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Total memory.
    pub memory_total: i64,
    /// Memory transferred.
    pub memory_processed: i64,
    /// Memory remaining.
    pub memory_remaining: i64,
    /// Total size of the disks.
    pub disk_total: i64,
    /// Disk content transferred.
    pub disk_processed: i64,
    /// Disk content remaining.
    pub disk_remaining: i64,
}
