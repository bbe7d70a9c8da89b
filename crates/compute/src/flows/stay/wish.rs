//! What can be asked for: its words in Nova, and what it changes in the document.

use kilonova_ids::{ImageId, OperationId};
use kilonova_node_api::{Domain, Guest, Machine, Power, Rescue, Verb};

/// Kinds of operations that are carried out here. A deletion that can be taken back is told from
/// one that cannot by its step.
pub(super) const KINDS: &[&str] = &[
    "pause",
    "unpause",
    "suspend",
    "resume",
    "rescue",
    "unrescue",
    "rebuild",
    "createImage",
    "createBackup",
    "trigger_crash_dump",
    "shelve",
    "shelveOffload",
    "unshelve",
    "restore",
];

/// What is asked of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// `pause`.
    Pause,
    /// `unpause`.
    Unpause,
    /// `suspend`.
    Suspend,
    /// `resume`.
    Resume,
    /// `rescue`, from this image.
    Rescue(Option<ImageId>),
    /// `unrescue`.
    Unrescue,
    /// `rebuild`, like this; one that was shut off stays so.
    Rebuild(Box<Rebuild>),
    /// `createImage`, into this image.
    CreateImage(ImageId),
    /// `createBackup`, into this image.
    CreateBackup(ImageId),
    /// `trigger_crash_dump`.
    CrashDump,
    /// `shelve`, with this image of the disk.
    Shelve(ImageId),
    /// `unshelve`, of a server that is still on its host.
    Unshelve,
    /// `delete`, of a kind that can be taken back.
    SoftDelete,
    /// `restore`.
    Restore,
}

/// What a server is made anew with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuild {
    /// What the user calls it now.
    pub name: String,
    /// The image.
    pub image: Option<ImageId>,
    /// What the image says of the machine.
    pub machine: Machine,
    /// What the guest is told.
    pub guest: Guest,
}

impl Wish {
    /// Nova's name of the action.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Unpause => "unpause",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Rescue(_) => "rescue",
            Self::Unrescue => "unrescue",
            Self::Rebuild(_) => "rebuild",
            Self::CreateImage(_) => "createImage",
            Self::CreateBackup(_) => "createBackup",
            Self::CrashDump => "trigger_crash_dump",
            Self::Shelve(_) => "shelve",
            Self::Unshelve => "unshelve",
            Self::SoftDelete => "delete",
            Self::Restore => "restore",
        }
    }

    /// The row of the table of states.
    pub(super) fn rule(&self) -> &'static str {
        self.kind()
    }

    pub(super) fn step(&self) -> &'static str {
        if *self == Self::SoftDelete { super::SOFT } else { "settle" }
    }

    pub(super) fn task(&self) -> Option<&'static str> {
        Some(match self {
            Self::Pause => "pausing",
            Self::Unpause => "unpausing",
            Self::Suspend => "suspending",
            Self::Resume => "resuming",
            Self::Rescue(_) => "rescuing",
            Self::Unrescue => "unrescuing",
            Self::Rebuild(_) => "rebuilding",
            Self::CreateImage(_) => "image_snapshot_pending",
            Self::CreateBackup(_) => "image_backup",
            Self::CrashDump => return None,
            Self::Shelve(_) => "shelving",
            Self::Unshelve => "unshelving",
            Self::SoftDelete => "soft-deleting",
            Self::Restore => "restoring",
        })
    }

    /// Makes the document say it, and nothing that was called off.
    pub(super) fn apply(&self, domain: &mut Domain, operation: OperationId) {
        domain.verb = None;
        match self {
            Self::Pause => domain.power = Power::Paused,
            Self::Suspend => domain.power = Power::Suspended,
            Self::Unpause | Self::Resume | Self::Unshelve => domain.power = Power::On,
            Self::Rescue(image) => {
                domain.rescue = Some(Rescue { image: *image, ..Rescue::default() });
                domain.power = Power::On;
            }
            Self::Unrescue | Self::Restore => {
                domain.rescue = None;
                domain.power = Power::On;
            }
            Self::Rebuild(rebuild) => {
                domain.display_name.clone_from(&rebuild.name);
                domain.boot.image = rebuild.image;
                domain.boot.rebuilt = Some(operation);
                domain.machine = rebuild.machine.clone();
                domain.guest = rebuild.guest.clone();
                domain.rescue = None;
                if domain.power != Power::Off {
                    domain.power = Power::On;
                }
            }
            Self::CreateImage(image) | Self::CreateBackup(image) => {
                domain.verb = Some((operation, Verb::Snapshot { image: *image }));
            }
            Self::CrashDump => domain.verb = Some((operation, Verb::CrashDump)),
            Self::Shelve(image) => {
                domain.power = Power::Off;
                domain.verb = Some((operation, Verb::Snapshot { image: *image }));
            }
            Self::SoftDelete => domain.power = Power::Off,
        }
    }
}

/// The event that Nova records for an operation on its host.
pub(super) fn event_of(kind: &str) -> String {
    match kind {
        "createImage" => "compute_snapshot_instance".to_owned(),
        "createBackup" => "compute_backup_instance".to_owned(),
        "trigger_crash_dump" => "compute_trigger_crash_dump".to_owned(),
        "shelveOffload" => "compute_shelve_offload_instance".to_owned(),
        "delete" => "compute_soft_delete_instance".to_owned(),
        other => format!("compute_{other}_instance"),
    }
}
