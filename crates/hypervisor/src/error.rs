//! Which step of a hypervisor failed, and why.

use serde::{Deserialize, Serialize};

/// The steps that a driver takes, by the names that observations carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Bringing the disks into place.
    Image,
    /// Making the domain known.
    Define,
    /// Making a mediated device, or removing one.
    CreateMdev,
    /// Powering on.
    Start,
    /// Powering off by asking the guest.
    Stop,
    /// Asking the guest to restart.
    Reboot,
    /// Powering off at once, and removing domain and disks.
    Destroy,
    /// Stopping the processors.
    Pause,
    /// Letting them go on.
    Unpause,
    /// Writing the memory to disk.
    Suspend,
    /// Going on from the memory on disk.
    Resume,
    /// Copying the root disk.
    Snapshot,
    /// Interrupting the guest.
    CrashDump,
    /// Reading what the guest has said or used.
    Look,
    /// Getting ready for a guest from another host.
    Receive,
    /// Sending the guest to another host.
    Migrate,
}

impl Step {
    /// `image`, `define`, …
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Define => "define",
            Self::CreateMdev => "create_mdev",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Reboot => "reboot",
            Self::Destroy => "destroy",
            Self::Pause => "pause",
            Self::Unpause => "unpause",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Snapshot => "snapshot",
            Self::CrashDump => "crash_dump",
            Self::Look => "look",
            Self::Receive => "receive",
            Self::Migrate => "migrate",
        }
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A step that could not be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// Which.
    pub step: Step,
    /// Why, for people.
    pub message: String,
}

impl Error {
    /// An error of a step.
    pub fn new(step: Step, message: impl Into<String>) -> Self {
        Self { step, message: message.into() }
    }
}
