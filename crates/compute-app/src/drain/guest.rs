//! A host and its guests, as the API describes them.

use std::fmt;

use kilonova_compute_db::drain_guests::{DrainGuest, OperationRow};
use kilonova_compute_db::drains::Progress;
use kilonova_compute_db::moves::{Kind, Status};
use kilonova_compute_db::servers::VmState as StoredState;
use kilonova_ids::HostName;
use kilonova_node_api::Desired;
use serde::Deserialize;

use crate::flows::{self, operation as journal};

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
    /// Its drain, if one runs or has ended. A controller of an earlier version reports none.
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
    /// Maximum number of servers that move at the same time.
    pub parallel: i64,
    /// Number of servers on the host when the drain began.
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
    /// No further guest can move without an operator.
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
    /// The reason for a refusal or a failure.
    pub why: Option<String>,
    /// When a refused request is repeated.
    #[serde(default)]
    pub next_try_at: Option<String>,
}

/// The progress of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MoveState {
    /// It was requested.
    Requested,
    /// The move is not possible now: the request was refused and is repeated, or an operation cannot be read.
    Refused,
    /// It failed, or was refused too often.
    Failed,
}

impl HostDrain {
    /// The move of a server; `None` if it has not been requested yet.
    pub fn move_of(&self, server: &str) -> Option<&GuestMove> {
        self.moves.iter().find(|one| one.server == server)
    }

    /// The progress of a server's move; `None` if it has not been requested yet.
    pub fn progress(&self, server: &str) -> Option<Progress> {
        let one = self.move_of(server)?;
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
    /// The host is down.
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
    /// Any other state, including one from a newer controller.
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
    /// It waits to be confirmed.
    Finished,
    /// Any other status.
    #[serde(untagged)]
    Other(String),
}

/// A server with anything on the host.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Guest {
    /// Its UUID.
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
    /// Why the answering controller cannot read it.
    #[serde(default)]
    pub unreadable: Option<String>,
}

impl Operation {
    /// Why a drain can do nothing about the operation, if this controller cannot read it.
    pub fn unread(&self) -> Option<String> {
        let why = self.unreadable.as_ref()?;
        Some(format!("its {} cannot be read by this controller: {why}", self.action))
    }
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

/// The guest as a round of a drain reads it: without name, status and awaited event, because no decision depends on
/// them.
impl From<&DrainGuest> for Guest {
    fn from(guest: &DrainGuest) -> Self {
        let operation = guest.operation.as_ref().map(|row| Operation {
            action: Action::of(&row.kind),
            waits_for: None,
            unreadable: unreadable(row),
        });
        let open_move = guest.open_move.as_ref().map(|one| Move {
            kind: one.kind.into(),
            status: one.status.into(),
            source: one.source.clone(),
        });
        let devices = match &guest.desired {
            Some(Desired::Present(domain)) => domain.config.devices.as_slice(),
            Some(Desired::Absent) | None => &[],
        };
        Self {
            id: guest.server.to_string(),
            name: None,
            status: None,
            vm_state: guest.vm_state.map(Into::into),
            host: guest.host.clone(),
            cannot_move_running: flows::unmigratable_device(devices).map(str::to_owned),
            operation,
            open_move,
        }
    }
}

/// Why a row of the journal is not a valid operation.
fn unreadable(row: &OperationRow) -> Option<String> {
    let data = match serde_json::from_str(&row.data) {
        Ok(data) => data,
        Err(error) => return Some(format!("its data is not JSON: {error}")),
    };
    journal::Operation::read(&row.kind, &row.step, &data).err().map(|why| why.to_string())
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
