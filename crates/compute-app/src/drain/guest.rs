//! A host and its guests, as the API describes them.

use std::fmt;

use kilonova_compute_db::drains::Progress;
use kilonova_compute_db::moves::{Kind, Status};
use kilonova_compute_db::servers::VmState as StoredState;
use kilonova_ids::HostName;
use serde::Deserialize;

use crate::explain;

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
    /// Its drain, if one runs or has ended. A controller of an earlier version has none.
    #[serde(default)]
    pub drain: Option<HostDrain>,
}

/// The drain of a host.
#[derive(Debug, Clone, Deserialize)]
pub struct HostDrain {
    /// Its state.
    pub state: DrainState,
    /// True if it shuts off, moves and restarts servers that cannot live-migrate.
    pub cold: bool,
    /// How many servers move at the same time.
    pub parallel: i64,
    /// The servers on the host when it began.
    pub total: usize,
    /// When it began.
    pub begun_at: String,
    /// When it ended.
    pub ended_at: Option<String>,
    /// The moves that it has requested.
    pub moves: Vec<GuestMove>,
}

/// The state of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DrainState {
    /// It requests moves, or waits for them.
    Running,
    /// Nothing more can move by itself.
    Ended,
    /// An operator stopped it.
    Stopped,
}

/// The move of a guest by a drain.
#[derive(Debug, Clone, Deserialize)]
pub struct GuestMove {
    /// The server.
    pub server: String,
    /// Its progress.
    pub state: MoveState,
    /// The reason of a refusal or a failure.
    pub why: Option<String>,
}

/// The progress of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MoveState {
    /// It was requested.
    Requested,
    /// The request was refused for now, and is repeated.
    Refused,
    /// It failed, or was refused too often.
    Failed,
}

impl HostDrain {
    /// The progress of the move of a server; `None` if it was not requested yet.
    pub fn progress(&self, server: &str) -> Option<Progress> {
        let one = self.moves.iter().find(|one| one.server == server)?;
        let why = one.why.clone().unwrap_or_default();
        Some(match one.state {
            MoveState::Requested => Progress::Requested,
            MoveState::Refused => Progress::Refused(why),
            MoveState::Failed => Progress::Failed(why),
        })
    }
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

impl From<StoredState> for VmState {
    fn from(state: StoredState) -> Self {
        match state {
            StoredState::Active => Self::Active,
            StoredState::Paused => Self::Paused,
            StoredState::Suspended => Self::Suspended,
            StoredState::Stopped => Self::Stopped,
            StoredState::Rescued => Self::Rescued,
            StoredState::Resized => Self::Resized,
            StoredState::Shelved => Self::Shelved,
            StoredState::SoftDeleted => Self::SoftDeleted,
            StoredState::Error => Self::Error,
            StoredState::Building | StoredState::ShelvedOffloaded | StoredState::Deleted => {
                Self::Other(state.as_str().to_owned())
            }
        }
    }
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

impl Action {
    const LIVE: &str = "live-migration";
    const COLD: &str = "migrate";
    const OFFLOAD: &str = "shelveOffload";

    fn of(name: &str) -> Self {
        match name {
            Self::LIVE => Self::LiveMigration,
            Self::COLD => Self::Migrate,
            Self::OFFLOAD => Self::Offload,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LiveMigration => Self::LIVE,
            Self::Migrate => Self::COLD,
            Self::Offload => Self::OFFLOAD,
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

impl From<Kind> for MoveKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Cold => Self::Migration,
            Kind::Resize => Self::Resize,
            Kind::Live => Self::LiveMigration,
            Kind::Evacuation => Self::Evacuation,
        }
    }
}

impl From<Status> for MoveStatus {
    fn from(status: Status) -> Self {
        if status == Status::Finished {
            return Self::Finished;
        }
        Self::Other(status.as_str().to_owned())
    }
}

/// The guest of the explanation from which the API's answer is made. It has no status, on which no decision depends.
impl From<&explain::Guest> for Guest {
    fn from(guest: &explain::Guest) -> Self {
        let server = guest.server.as_ref();
        let operation = guest.operation.as_ref().map(|one| Operation {
            action: Action::of(&one.row.kind),
            waits_for: guest.awaited.as_ref().map(explain::Awaited::text),
        });
        let open_move = guest.open.as_ref().map(|one| Move {
            kind: one.kind.into(),
            status: one.status.into(),
            source: one.source.clone(),
        });
        Self {
            id: guest.id.to_string(),
            name: server.map(|server| server.name.clone()),
            status: None,
            vm_state: server.map(|server| server.vm_state.into()),
            host: server.and_then(|server| server.host.clone()),
            cannot_move_running: guest.stays.clone(),
            operation,
            open_move,
        }
    }
}

#[cfg(test)]
mod tests {
    use kilonova_compute_db::servers::VmState as Stored;

    use super::*;

    #[test]
    fn every_action_is_read_as_it_is_named() {
        for name in [Action::LIVE, Action::COLD, Action::OFFLOAD, "reboot"] {
            let read: Action = serde_json::from_value(name.into()).unwrap();
            assert_eq!((read.clone(), read.to_string()), (Action::of(name), name.to_owned()));
        }
    }

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
            let expected = VmState::from(stored);
            let read: VmState = serde_json::from_value(name.into()).unwrap();
            assert_eq!(read, expected, "{name}");
        }
    }
}
