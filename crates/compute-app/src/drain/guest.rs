//! A host and its guests, as the API describes them.

use std::fmt;

use kilonova_ids::HostName;
use serde::Deserialize;

/// A host and the servers on it.
#[derive(Debug, Clone, Deserialize)]
pub struct DrainedHost {
    /// Its name.
    pub name: HostName,
    /// The id of its compute service.
    pub service_id: String,
    /// The state of its agent.
    pub state: HostState,
    /// The operator's setting.
    pub status: HostStatus,
    /// Why it is disabled.
    pub disabled_reason: Option<String>,
    /// Accelerators that are allocated or dirty.
    pub accelerators_not_free: i64,
    /// The servers with anything on the host.
    pub guests: Vec<Guest>,
}

/// The state of a host's agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostState {
    /// It reports.
    Up,
    /// It is silent, or the host is forced down.
    Down,
}

/// An operator's setting for a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostStatus {
    /// The scheduler uses it.
    Enabled,
    /// The scheduler does not use it.
    Disabled,
}

/// Nova's VM state of a server, as far as a drain depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VmState {
    /// Running.
    Active,
    /// Running, with its vCPUs stopped.
    Paused,
    /// Its memory is saved on disk.
    Suspended,
    /// Shut off.
    Stopped,
    /// Running from a rescue image.
    Rescued,
    /// Resized or migrated, and not yet confirmed.
    Resized,
    /// Shut off on its host, with an image of its disk.
    Shelved,
    /// Deleted, and restorable for a while.
    #[serde(rename = "soft-delete")]
    SoftDeleted,
    /// An operation failed.
    Error,
    /// Any other state, also one of a newer controller.
    #[serde(untagged)]
    Other(String),
}

/// Nova's action of an operation, as far as a drain depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub enum Action {
    /// A live migration.
    #[serde(rename = "live-migration")]
    LiveMigration,
    /// A cold migration.
    #[serde(rename = "migrate")]
    Migrate,
    /// The offload of a shelved server.
    #[serde(rename = "shelveOffload")]
    Offload,
    /// Any other action.
    #[serde(untagged)]
    Other(String),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LiveMigration => "live-migration",
            Self::Migrate => "migrate",
            Self::Offload => "shelveOffload",
            Self::Other(name) => name,
        })
    }
}

/// Nova's type of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MoveKind {
    /// A cold migration.
    Migration,
    /// A resize.
    Resize,
    /// A live migration.
    LiveMigration,
    /// An evacuation.
    Evacuation,
}

/// Nova's status of a migration, as far as a drain depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MoveStatus {
    /// It waits for its confirmation.
    Finished,
    /// Any other status.
    #[serde(untagged)]
    Other(String),
}

/// A server with anything on the host.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Guest {
    /// Its uuid.
    pub id: String,
    /// Its name; `None` for a deleted server.
    pub name: Option<String>,
    /// Nova's status.
    pub status: Option<String>,
    /// Nova's VM state.
    pub vm_state: Option<VmState>,
    /// Its current host.
    pub host: Option<HostName>,
    /// PCI address of a device that prevents live migration.
    pub cannot_move_running: Option<String>,
    /// The operation in progress.
    pub operation: Option<Operation>,
    /// Its unfinished migration.
    #[serde(rename = "move")]
    pub open_move: Option<Move>,
}

/// An operation in progress.
#[derive(Debug, Clone, Deserialize)]
pub struct Operation {
    /// Nova's action.
    pub action: Action,
    /// The awaited event, as a message.
    pub waits_for: Option<String>,
}

/// A migration.
#[derive(Debug, Clone, Deserialize)]
pub struct Move {
    /// Nova's type.
    #[serde(rename = "type")]
    pub kind: MoveKind,
    /// Nova's status.
    pub status: MoveStatus,
    /// The source host.
    pub source: HostName,
}

#[cfg(test)]
mod tests {
    use kilonova_compute_db::servers::VmState as Stored;

    use super::*;

    #[test]
    fn every_state_of_a_server_is_read() {
        for stored in [
            Stored::Building,
            Stored::Active,
            Stored::Paused,
            Stored::Suspended,
            Stored::Stopped,
            Stored::Rescued,
            Stored::Resized,
            Stored::Shelved,
            Stored::ShelvedOffloaded,
            Stored::SoftDeleted,
            Stored::Error,
            Stored::Deleted,
        ] {
            let name = stored.as_str();
            let expected = match stored {
                Stored::Active => VmState::Active,
                Stored::Paused => VmState::Paused,
                Stored::Suspended => VmState::Suspended,
                Stored::Stopped => VmState::Stopped,
                Stored::Rescued => VmState::Rescued,
                Stored::Resized => VmState::Resized,
                Stored::Shelved => VmState::Shelved,
                Stored::SoftDeleted => VmState::SoftDeleted,
                Stored::Error => VmState::Error,
                Stored::Building | Stored::ShelvedOffloaded | Stored::Deleted => {
                    VmState::Other(name.to_owned())
                }
            };
            let read: VmState = serde_json::from_value(name.into()).unwrap();
            assert_eq!(read, expected, "{name}");
        }
    }
}
