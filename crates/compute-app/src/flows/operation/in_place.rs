//! Changes to a guest on its host, the offload of a shelved server, and the boot of an offloaded one.

use kilonova_compute_db::servers::{PowerState, VmState};
use kilonova_ids::{HostName, ImageId};
use kilonova_node_api::{Domain, GuestVerb};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Action, Row, Step, Unreadable};

/// A change to the guest on its host.
#[derive(Debug, Clone, PartialEq)]
pub struct InPlace {
    /// The change.
    pub change: InPlaceChange,
    /// The server before the change.
    pub before: Before,
    /// Its step.
    pub step: InPlaceStep,
}

/// The kind of a change. The image is the one being created; `None` once it has been discarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InPlaceChange {
    /// `pause`.
    Pause,
    /// `unpause`.
    Unpause,
    /// `suspend`.
    Suspend,
    /// `resume`.
    Resume,
    /// `rescue`.
    Rescue,
    /// `unrescue`.
    Unrescue,
    /// `rebuild`.
    Rebuild,
    /// `createImage`.
    CreateImage(Option<ImageId>),
    /// `createBackup`.
    CreateBackup(Option<ImageId>, Backup),
    /// A verb that the host carries out on the guest.
    Guest(GuestVerb),
    /// `shelve`.
    Shelve(Option<ImageId>),
    /// `unshelve` of a server that is still on its host.
    Unshelve,
    /// `delete` that `restore` can undo.
    SoftDelete,
    /// `restore`.
    Restore,
}

/// The rotation of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// Its type: `daily`, …
    pub backup_type: String,
    /// Number of backups of the type to keep.
    pub rotation: i64,
}

/// The step of a change in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InPlaceStep {
    /// The host shuts off the guest of a rebuild and releases its root volume, whose data Cinder replaces.
    Reimage,
    /// The host brings the guest into the requested state.
    Settle,
    /// The change failed; the host restores the guest's previous state.
    Undo {
        /// Why it failed.
        reason: String,
    },
}

/// The server before a change in place.
#[derive(Debug, Clone, PartialEq)]
pub struct Before {
    /// The guest, without a verb.
    pub domain: Box<Domain>,
    /// The server's state.
    pub vm_state: VmState,
    /// The guest's power state.
    pub power_state: PowerState,
}

/// An offload: the host removes the guest of a shelved server.
#[derive(Debug, Clone, PartialEq)]
pub struct Offload {
    /// The action that this offload is part of.
    pub cause: OffloadCause,
    /// Why the last attempt failed.
    pub reason: Option<String>,
}

/// The action that an offload is part of.
#[derive(Debug, Clone, PartialEq)]
pub enum OffloadCause {
    /// `shelve`, if servers are offloaded immediately.
    Shelve(Before),
    /// `shelveOffload`.
    ShelveOffload {
        /// The server's state before.
        vm_state: VmState,
        /// The guest's power state before.
        power_state: PowerState,
    },
}

/// `unshelve` of a server that is on no host.
#[derive(Debug, Clone, PartialEq)]
pub enum Unshelve {
    /// The new host starts the guest.
    Spawn(UnshelveState),
    /// The new host failed and removes the guest.
    Clear(UnshelveState),
}

/// The state of an `unshelve`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnshelveState {
    /// The server's state before.
    pub vm_state: VmState,
    /// The guest's power state before.
    pub power_state: PowerState,
    /// The requested host.
    pub requested: Option<HostName>,
    /// The scheduling decision, for operators.
    pub chosen: Option<String>,
    /// Hosts that failed.
    pub tried: Vec<HostName>,
    /// The last failure.
    pub reason: Option<String>,
}

/// The stored data of each of these operations.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Data {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    former: Option<Box<Domain>>,
    vm_state: String,
    power_state: PowerState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    image: Option<ImageId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backup: Option<(String, i64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chosen: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tried: Vec<HostName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<HostName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Data {
    fn no_search(&self, row: Row<'_>) -> Result<(), Unreadable> {
        row.never("chosen", self.chosen.is_some())?;
        row.never("tried", !self.tried.is_empty())?;
        row.never("host", self.host.is_some())
    }

    fn no_image(&self, row: Row<'_>) -> Result<(), Unreadable> {
        row.never("image", self.image.is_some())?;
        row.never("backup", self.backup.is_some())
    }

    fn of(before: &Before) -> Self {
        Self {
            former: Some(before.domain.clone()),
            vm_state: before.vm_state.as_str().to_owned(),
            power_state: before.power_state,
            ..Self::default()
        }
    }
}

impl InPlace {
    pub(super) fn read(row: Row<'_>) -> Result<Self, Unreadable> {
        let data: Data = row.parse()?;
        data.no_search(row)?;
        let step = match row.step {
            Step::Settle | Step::Soft => {
                if (row.step == Step::Soft) != (row.action == Action::Delete) {
                    return Err(row.not_a_step());
                }
                row.never("reason", data.reason.is_some())?;
                InPlaceStep::Settle
            }
            Step::Reimage if row.action == Action::Rebuild => {
                row.never("reason", data.reason.is_some())?;
                InPlaceStep::Reimage
            }
            // A rebuild cannot be rolled back, because its old disk has been replaced.
            Step::Undo if row.action != Action::Rebuild => {
                row.never("image", data.image.is_some())?;
                InPlaceStep::Undo { reason: row.required("reason", data.reason)? }
            }
            _ => return Err(row.not_a_step()),
        };
        let image = match step {
            InPlaceStep::Settle => |row: Row<'_>, image| row.required("image", image).map(Some),
            InPlaceStep::Reimage | InPlaceStep::Undo { .. } => |_: Row<'_>, _| Ok(None),
        };
        let plain = |change| {
            row.never("image", data.image.is_some())?;
            row.never("backup", data.backup.is_some())?;
            Ok(change)
        };
        let change = match row.action {
            Action::Pause => plain(InPlaceChange::Pause)?,
            Action::Unpause => plain(InPlaceChange::Unpause)?,
            Action::Suspend => plain(InPlaceChange::Suspend)?,
            Action::Resume => plain(InPlaceChange::Resume)?,
            Action::Rescue => plain(InPlaceChange::Rescue)?,
            Action::Unrescue => plain(InPlaceChange::Unrescue)?,
            Action::Rebuild => plain(InPlaceChange::Rebuild)?,
            Action::Guest(verb) => plain(InPlaceChange::Guest(verb))?,
            Action::Unshelve => plain(InPlaceChange::Unshelve)?,
            Action::Delete => plain(InPlaceChange::SoftDelete)?,
            Action::Restore => plain(InPlaceChange::Restore)?,
            Action::CreateImage | Action::Shelve => {
                row.never("backup", data.backup.is_some())?;
                let image = image(row, data.image)?;
                match row.action {
                    Action::Shelve => InPlaceChange::Shelve(image),
                    _ => InPlaceChange::CreateImage(image),
                }
            }
            Action::CreateBackup => {
                let (backup_type, rotation) = row.required("backup", data.backup.clone())?;
                let backup = Backup { backup_type, rotation };
                InPlaceChange::CreateBackup(image(row, data.image)?, backup)
            }
            _ => return Err(row.not_a_step()),
        };
        let before = Before {
            vm_state: row.vm_state(&data.vm_state)?,
            power_state: data.power_state,
            domain: row.required("former", data.former)?,
        };
        Ok(Self { change, before, step })
    }

    pub(super) fn action(&self) -> Action {
        self.change.action()
    }

    pub(super) fn step(&self) -> Step {
        match (&self.step, &self.change) {
            (InPlaceStep::Undo { .. }, _) => Step::Undo,
            (InPlaceStep::Reimage, _) => Step::Reimage,
            (InPlaceStep::Settle, InPlaceChange::SoftDelete) => Step::Soft,
            (InPlaceStep::Settle, _) => Step::Settle,
        }
    }

    pub(super) fn data(&self) -> Result<Value, serde_json::Error> {
        let (image, backup) = match &self.change {
            InPlaceChange::CreateImage(image) | InPlaceChange::Shelve(image) => (*image, None),
            InPlaceChange::CreateBackup(image, backup) => {
                (*image, Some((backup.backup_type.clone(), backup.rotation)))
            }
            InPlaceChange::Pause
            | InPlaceChange::Unpause
            | InPlaceChange::Suspend
            | InPlaceChange::Resume
            | InPlaceChange::Rescue
            | InPlaceChange::Unrescue
            | InPlaceChange::Rebuild
            | InPlaceChange::Guest(_)
            | InPlaceChange::Unshelve
            | InPlaceChange::SoftDelete
            | InPlaceChange::Restore => (None, None),
        };
        let reason = match &self.step {
            InPlaceStep::Reimage | InPlaceStep::Settle => None,
            InPlaceStep::Undo { reason } => Some(reason.clone()),
        };
        serde_json::to_value(Data { image, backup, reason, ..Data::of(&self.before) })
    }
}

impl InPlaceChange {
    /// The instance action.
    pub fn action(&self) -> Action {
        match self {
            Self::Pause => Action::Pause,
            Self::Unpause => Action::Unpause,
            Self::Suspend => Action::Suspend,
            Self::Resume => Action::Resume,
            Self::Rescue => Action::Rescue,
            Self::Unrescue => Action::Unrescue,
            Self::Rebuild => Action::Rebuild,
            Self::CreateImage(_) => Action::CreateImage,
            Self::CreateBackup(..) => Action::CreateBackup,
            Self::Guest(verb) => Action::Guest(*verb),
            Self::Shelve(_) => Action::Shelve,
            Self::Unshelve => Action::Unshelve,
            Self::SoftDelete => Action::Delete,
            Self::Restore => Action::Restore,
        }
    }

    /// The image that is being created.
    pub fn image(&self) -> Option<ImageId> {
        match self {
            Self::CreateImage(image) | Self::CreateBackup(image, _) | Self::Shelve(image) => *image,
            Self::Pause
            | Self::Unpause
            | Self::Suspend
            | Self::Resume
            | Self::Rescue
            | Self::Unrescue
            | Self::Rebuild
            | Self::Guest(_)
            | Self::Unshelve
            | Self::SoftDelete
            | Self::Restore => None,
        }
    }

    /// The same change after its image was discarded.
    pub fn without_image(self) -> Self {
        match self {
            Self::CreateImage(_) => Self::CreateImage(None),
            Self::CreateBackup(_, backup) => Self::CreateBackup(None, backup),
            Self::Shelve(_) => Self::Shelve(None),
            Self::Pause
            | Self::Unpause
            | Self::Suspend
            | Self::Resume
            | Self::Rescue
            | Self::Unrescue
            | Self::Rebuild
            | Self::Guest(_)
            | Self::Unshelve
            | Self::SoftDelete
            | Self::Restore => self,
        }
    }
}

impl Offload {
    pub(super) fn read(row: Row<'_>) -> Result<Self, Unreadable> {
        if row.step != Step::Clear {
            return Err(row.not_a_step());
        }
        let data: Data = row.parse()?;
        data.no_search(row)?;
        data.no_image(row)?;
        let (vm_state, power_state) = (row.vm_state(&data.vm_state)?, data.power_state);
        let cause = if row.action == Action::Shelve {
            let domain = row.required("former", data.former)?;
            OffloadCause::Shelve(Before { domain, vm_state, power_state })
        } else {
            row.never("former", data.former.is_some())?;
            OffloadCause::ShelveOffload { vm_state, power_state }
        };
        Ok(Self { cause, reason: data.reason })
    }

    pub(super) fn action(&self) -> Action {
        match &self.cause {
            OffloadCause::Shelve(_) => Action::Shelve,
            OffloadCause::ShelveOffload { .. } => Action::ShelveOffload,
        }
    }

    pub(super) fn data(&self) -> Result<Value, serde_json::Error> {
        let data = match &self.cause {
            OffloadCause::Shelve(before) => Data::of(before),
            OffloadCause::ShelveOffload { vm_state, power_state } => Data {
                vm_state: vm_state.as_str().to_owned(),
                power_state: *power_state,
                ..Data::default()
            },
        };
        serde_json::to_value(Data { reason: self.reason.clone(), ..data })
    }
}

impl Unshelve {
    pub(super) fn read(row: Row<'_>) -> Result<Self, Unreadable> {
        let data: Data = row.parse()?;
        data.no_image(row)?;
        row.never("former", data.former.is_some())?;
        let state = UnshelveState {
            vm_state: row.vm_state(&data.vm_state)?,
            power_state: data.power_state,
            requested: data.host,
            chosen: data.chosen,
            tried: data.tried,
            reason: data.reason,
        };
        match row.step {
            Step::Unshelve => Ok(Self::Spawn(state)),
            Step::ClearUnshelve => Ok(Self::Clear(state)),
            _ => Err(row.not_a_step()),
        }
    }

    pub(super) fn step(&self) -> Step {
        match self {
            Self::Spawn(_) => Step::Unshelve,
            Self::Clear(_) => Step::ClearUnshelve,
        }
    }

    pub(super) fn data(&self) -> Result<Value, serde_json::Error> {
        let (Self::Spawn(state) | Self::Clear(state)) = self;
        let state = state.clone();
        serde_json::to_value(Data {
            vm_state: state.vm_state.as_str().to_owned(),
            power_state: state.power_state,
            host: state.requested,
            chosen: state.chosen,
            tried: state.tried,
            reason: state.reason,
            ..Data::default()
        })
    }
}
