//! The commands that change a guest on its host: their names, and their changes to the document.

use std::collections::BTreeMap;

use kilonova_compute_db::servers::{TaskState, VmState};
use kilonova_ids::{ImageId, OperationId};
use kilonova_node_api::{Domain, GuestMetadata, GuestVerb, Machine, Power, Rescue, Verb};

use crate::actions::ServerAction;
use crate::flows::operation::{Backup, InPlaceChange, InPlaceStep};

/// A command for a guest on its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerCommand {
    /// `pause`.
    Pause,
    /// `unpause`.
    Unpause,
    /// `suspend`.
    Suspend,
    /// `resume`.
    Resume,
    /// `rescue`, from this image; `None` means the server's own image.
    Rescue(Option<RescueImage>),
    /// `unrescue`.
    Unrescue,
    /// `rebuild`; a server in `SHUTOFF` stays shut off.
    Rebuild(Box<Rebuild>),
    /// `createImage`, into this image.
    CreateImage(ImageId),
    /// `createBackup`, into this image.
    CreateBackup(ImageId, Backup),
    /// A verb that the host carries out on the guest.
    Guest(GuestVerb),
    /// `shelve`, with this image of the disk.
    Shelve(ImageId),
    /// `unshelve` of a server that is still on its host.
    Unshelve,
    /// A `delete` that `restore` can undo.
    SoftDelete,
    /// `restore`.
    Restore,
}

/// The image of a rescue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RescueImage {
    /// Its id.
    pub id: ImageId,
    /// Its properties.
    pub properties: BTreeMap<String, String>,
}

/// The new definition of a rebuilt server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuild {
    /// The display name.
    pub name: String,
    /// The image of the root disk; `None` for a volume-backed server.
    pub image: Option<ImageId>,
    /// True if Cinder replaces the data of the root volume first, while the guest is shut off.
    pub reimages: bool,
    /// The machine that the image's properties describe.
    pub machine: Machine,
    /// The guest's metadata.
    pub guest: GuestMetadata,
}

impl ServerCommand {
    /// The change as the journal stores it.
    pub(super) fn change(&self) -> InPlaceChange {
        match self {
            Self::Pause => InPlaceChange::Pause,
            Self::Unpause => InPlaceChange::Unpause,
            Self::Suspend => InPlaceChange::Suspend,
            Self::Resume => InPlaceChange::Resume,
            Self::Rescue(_) => InPlaceChange::Rescue,
            Self::Unrescue => InPlaceChange::Unrescue,
            Self::Rebuild(_) => InPlaceChange::Rebuild,
            Self::CreateImage(image) => InPlaceChange::CreateImage(Some(*image)),
            Self::CreateBackup(image, backup) => {
                InPlaceChange::CreateBackup(Some(*image), backup.clone())
            }
            Self::Guest(verb) => InPlaceChange::Guest(*verb),
            Self::Shelve(image) => InPlaceChange::Shelve(Some(*image)),
            Self::Unshelve => InPlaceChange::Unshelve,
            Self::SoftDelete => InPlaceChange::SoftDelete,
            Self::Restore => InPlaceChange::Restore,
        }
    }

    /// The first step of the change.
    pub(super) fn step(&self) -> InPlaceStep {
        match self {
            Self::Rebuild(rebuild) if rebuild.reimages => InPlaceStep::Reimage,
            Self::Rebuild(_)
            | Self::Pause
            | Self::Unpause
            | Self::Suspend
            | Self::Resume
            | Self::Rescue(_)
            | Self::Unrescue
            | Self::CreateImage(_)
            | Self::CreateBackup(..)
            | Self::Guest(_)
            | Self::Shelve(_)
            | Self::Unshelve
            | Self::SoftDelete
            | Self::Restore => InPlaceStep::Settle,
        }
    }

    /// The entry in the table of actions.
    pub(super) fn action(&self) -> ServerAction {
        action(&self.change())
    }

    /// The task state during the change; without one the server looks idle.
    pub(super) fn task(&self) -> Option<TaskState> {
        match self {
            Self::SoftDelete => Some(TaskState::SoftDeleting),
            Self::Pause
            | Self::Unpause
            | Self::Suspend
            | Self::Resume
            | Self::Rescue(_)
            | Self::Unrescue
            | Self::Rebuild(_)
            | Self::CreateImage(_)
            | Self::CreateBackup(..)
            | Self::Guest(_)
            | Self::Shelve(_)
            | Self::Unshelve
            | Self::Restore => recorded_as(&self.change()).row().task,
        }
    }

    /// Applies the change to the document of a server in the state `was`, and removes the verb of an earlier operation.
    pub(super) fn apply(&self, domain: &mut Domain, operation: OperationId, was: VmState) {
        domain.verb = None;
        match self {
            Self::Pause => domain.power = Power::Paused,
            Self::Suspend => domain.power = Power::Suspended,
            Self::Unpause | Self::Resume | Self::Unshelve => domain.power = Power::On,
            Self::Rescue(image) => {
                let image = image.as_ref().map(|image| image.id);
                domain.config.rescue = Some(Rescue { image, ..Rescue::default() });
                domain.power = Power::On;
            }
            Self::Unrescue | Self::Restore => {
                domain.config.rescue = None;
                domain.power = Power::On;
            }
            Self::Rebuild(rebuild) => {
                domain.config.display_name.clone_from(&rebuild.name);
                domain.config.boot.image = rebuild.image;
                if !rebuild.reimages {
                    domain.config.boot.rebuilt = Some(operation);
                }
                domain.config.machine = rebuild.machine.clone();
                domain.kept_machine_type = None;
                domain.config.guest = rebuild.guest.clone();
                domain.config.rescue = None;
                domain.existing = false;
                domain.power = if rebuild.reimages { Power::Off } else { after_rebuild(was) };
            }
            Self::CreateImage(image) | Self::CreateBackup(image, _) => {
                domain.verb = Some((operation, Verb::Snapshot { image: *image }));
            }
            Self::Guest(verb) => domain.verb = Some((operation, Verb::Guest(*verb))),
            Self::Shelve(image) => {
                domain.power = Power::Off;
                domain.verb = Some((operation, Verb::Snapshot { image: *image }));
            }
            Self::SoftDelete => domain.power = Power::Off,
        }
    }
}

/// The power state of a guest after a rebuild: only a stopped server stays off, whatever the guest of another one is, as
/// upstream (`_do_rebuild_instance` in `nova/compute/manager.py`).
pub(super) fn after_rebuild(was: VmState) -> Power {
    if was == VmState::Stopped { Power::Off } else { Power::On }
}

/// The action that requests a change.
pub(super) fn action(change: &InPlaceChange) -> ServerAction {
    match change {
        InPlaceChange::Pause => ServerAction::Pause,
        InPlaceChange::Unpause => ServerAction::Unpause,
        InPlaceChange::Suspend => ServerAction::Suspend,
        InPlaceChange::Resume => ServerAction::Resume,
        InPlaceChange::Rescue => ServerAction::Rescue,
        InPlaceChange::Unrescue => ServerAction::Unrescue,
        InPlaceChange::Rebuild => ServerAction::Rebuild,
        InPlaceChange::CreateImage(_) => ServerAction::CreateImage,
        InPlaceChange::CreateBackup(..) => ServerAction::CreateBackup,
        InPlaceChange::Guest(verb) => ServerAction::Guest(*verb),
        InPlaceChange::Shelve(_) => ServerAction::Shelve,
        InPlaceChange::Unshelve => ServerAction::Unshelve,
        InPlaceChange::SoftDelete => ServerAction::Delete,
        InPlaceChange::Restore => ServerAction::Restore,
    }
}

/// The action whose task and event a change has. Unshelving a server that is still on its host starts it, as upstream
/// (`unshelve_instance` in `nova/conductor/manager.py`).
pub(super) fn recorded_as(change: &InPlaceChange) -> ServerAction {
    if *change == InPlaceChange::Unshelve { ServerAction::Start } else { action(change) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_has_novas_event() {
        let backup = Backup { backup_type: "daily".into(), rotation: 1 };
        for (change, event) in [
            (InPlaceChange::CreateBackup(None, backup), "compute_backup_instance"),
            (InPlaceChange::Pause, "compute_pause_instance"),
            (InPlaceChange::Unpause, "compute_unpause_instance"),
            (InPlaceChange::Suspend, "compute_suspend_instance"),
            (InPlaceChange::Resume, "compute_resume_instance"),
            (InPlaceChange::Rescue, "compute_rescue_instance"),
            (InPlaceChange::Unrescue, "compute_unrescue_instance"),
            (InPlaceChange::Rebuild, "compute_rebuild_instance"),
            (InPlaceChange::CreateImage(None), "compute_snapshot_instance"),
            (InPlaceChange::Guest(GuestVerb::CrashDump), "compute_trigger_crash_dump"),
            (InPlaceChange::Shelve(None), "compute_shelve_instance"),
            (InPlaceChange::Unshelve, "compute_start_instance"),
            (InPlaceChange::SoftDelete, "compute_soft_delete_instance"),
            (InPlaceChange::Restore, "compute_restore_instance"),
        ] {
            assert_eq!(recorded_as(&change).row().event, Some(event));
        }
    }
}
