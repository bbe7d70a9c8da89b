//! A driver's error: the failed step and the reason.

use kilonova_node_api::{GuestVerb, SNAPSHOT_STEP, VOLUME_STEP};
use serde::{Deserialize, Serialize};

/// The steps of a driver. Observations contain their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Creating the disks.
    Image,
    /// Defining the domain.
    Define,
    /// Creating or removing a mediated device.
    CreateMdev,
    /// Starting the guest.
    Start,
    /// Shutting the guest down.
    Stop,
    /// Rebooting the guest.
    Reboot,
    /// Powering off immediately, and removing domain and disks.
    Destroy,
    /// Pausing the guest.
    Pause,
    /// Unpausing the guest.
    Unpause,
    /// Saving the memory to disk.
    Suspend,
    /// Restoring the memory from disk.
    Resume,
    /// Copying the root disk.
    Snapshot,
    /// Reading state, console or usage.
    #[serde(rename = "look")]
    Inspect,
    /// Preparing for an incoming live migration.
    Receive,
    /// Live migration to another host.
    Migrate,
    /// Attaching or detaching a volume.
    Volume,
    /// Carrying out a verb on the guest.
    #[serde(untagged)]
    Verb(GuestVerb),
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
            Self::Snapshot => SNAPSHOT_STEP,
            Self::Inspect => "look",
            Self::Receive => "receive",
            Self::Migrate => "migrate",
            Self::Volume => VOLUME_STEP,
            Self::Verb(verb) => verb.as_str(),
        }
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failed step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// The step.
    pub step: Step,
    /// The reason, for the operator.
    pub message: String,
}

impl Error {
    /// An error of a step.
    pub fn new(step: Step, message: impl Into<String>) -> Self {
        Self { step, message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::Step;

    #[test]
    fn a_step_is_serialized_as_it_is_displayed() {
        let names = [
            "image",
            "define",
            "create_mdev",
            "start",
            "stop",
            "reboot",
            "destroy",
            "pause",
            "unpause",
            "suspend",
            "resume",
            "snapshot",
            "crash_dump",
            "look",
            "receive",
            "migrate",
            "volume",
        ];
        for name in names {
            let step: Step = serde_json::from_value(name.into()).expect("the name is known");
            assert_eq!(step.as_str(), name);
            assert_eq!(serde_json::to_value(step).expect("a step is serializable"), name);
        }
    }
}
