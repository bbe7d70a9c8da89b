//! The words in the journal's columns `kind` (the instance action) and `step`.
//!
//! These spellings are in the databases of every installation: never change one without a migration.

use std::fmt;

use kilonova_node_api::GuestVerb;

/// Defines an enum of words with their stored spellings. Words after `;` belong to another enum, which one variant
/// wraps.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$about:meta])* $word:ident = $text:literal,)*
        $(; $(#[$about_group:meta])* $group:ident($inner:ident) {
            $($member:ident = $member_text:literal,)*
        })?
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$about])* $word,)*
            $($(#[$about_group])* $group($inner),)?
        }

        impl $name {
            /// All values.
            pub const ALL: &[Self] =
                &[$(Self::$word,)* $($(Self::$group($inner::$member),)*)?];

            /// The stored spelling.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$word => $text,)*
                    $($(Self::$group($inner::$member) => $member_text,)*)?
                }
            }

            /// The word with this spelling; `None` if no word has it.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// An instance action, as upstream names it (`nova/compute/instance_actions.py`).
    Action {
        /// Boot.
        Create = "create",
        /// Delete, soft delete included.
        Delete = "delete",
        /// `os-start`.
        Start = "start",
        /// `os-stop`.
        Stop = "stop",
        /// `reboot`, soft or hard.
        Reboot = "reboot",
        /// `pause`.
        Pause = "pause",
        /// `unpause`.
        Unpause = "unpause",
        /// `suspend`.
        Suspend = "suspend",
        /// `resume`.
        Resume = "resume",
        /// `rescue`.
        Rescue = "rescue",
        /// `unrescue`.
        Unrescue = "unrescue",
        /// `rebuild`.
        Rebuild = "rebuild",
        /// `createImage`.
        CreateImage = "createImage",
        /// `createBackup`.
        CreateBackup = "createBackup",
        /// `shelve`.
        Shelve = "shelve",
        /// `shelveOffload`.
        ShelveOffload = "shelveOffload",
        /// `unshelve`.
        Unshelve = "unshelve",
        /// `restore`.
        Restore = "restore",
        /// `resize`.
        Resize = "resize",
        /// `migrate`.
        Migrate = "migrate",
        /// `confirmResize`.
        ConfirmResize = "confirmResize",
        /// `revertResize`.
        RevertResize = "revertResize",
        /// `evacuate`.
        Evacuate = "evacuate",
        /// `os-migrateLive`.
        LiveMigration = "live-migration",
        /// `DELETE …/migrations/{id}`.
        LiveMigrationCancel = "live_migration_cancel",
        /// `force_complete` of a live migration.
        LiveMigrationForceComplete = "live_migration_force_complete",
        /// `lock`.
        Lock = "lock",
        /// `unlock`.
        Unlock = "unlock",
        /// `os-resetState`.
        ResetState = "resetState",
        /// `POST …/os-interface`.
        AttachInterface = "attach_interface",
        /// `DELETE …/os-interface/{port}`.
        DetachInterface = "detach_interface",
        /// `POST …/os-volume_attachments`.
        AttachVolume = "attach_volume",
        /// `DELETE …/os-volume_attachments/{volume}`.
        DetachVolume = "detach_volume",
        /// Cinder has extended a volume.
        ExtendVolume = "extend_volume",
        /// `changePassword`.
        ChangePassword = "changePassword",
        ;
        /// A verb that the host carries out on the guest.
        Guest(GuestVerb) {
            CrashDump = "trigger_crash_dump",
        }
    }
}

words! {
    /// A step of an operation. Each state of [`Operation`](super::Operation) is one step.
    Step {
        /// A new server without a host waits for moves that make room for it.
        Wait = "wait_for_room",
        /// The host starts the guest of a new server.
        Spawn = "spawn",
        /// The guest runs, and its ports are not plugged yet. Only earlier versions begin this step.
        Plug = "plug",
        /// The host removes a guest: one that it failed to start, or one that is offloaded.
        Clear = "clear",
        /// The hosts remove the guest of a deleted server.
        Destroy = "destroy",
        /// Neutron and Cinder release the ports and volumes of a deleted server.
        Release = "release",
        /// The host brings the guest into the requested state, in place.
        Settle = "settle",
        /// The host shuts off the guest, and Cinder replaces the data of its root volume.
        Reimage = "reimage",
        /// The host shuts off the guest of a soft-deleted server.
        Soft = "soft",
        /// The host restores the state that the guest had before a failed operation.
        Undo = "undo",
        /// The new host starts the guest of an offloaded server.
        Unshelve = "unshelve",
        /// The new host removes a guest that it failed to unshelve.
        ClearUnshelve = "clear_unshelve",
        /// A move has no place yet. No open operation is ever committed at this step.
        Begin = "begin",
        /// The source shuts off the guest.
        StopSource = "stop_source",
        /// The destination creates the guest.
        MakeDest = "make_dest",
        /// The source of a revert reports whether it still has the guest.
        AskSource = "ask_source",
        /// The destination removes the guest of a move that failed or is reverted.
        DropDest = "drop_dest",
        /// The source restores the state that the guest had before the move.
        Restore = "restore",
        /// A live migration waits for others from the same source.
        Queued = "queued",
        /// The destination prepares for the running guest.
        Receive = "receive",
        /// The source sends the running guest.
        Transfer = "transfer",
        /// The source stops sending and reports the state of the guest.
        Abort = "abort",
        /// The destination reports the state of the guest.
        Locate = "find",
        /// The destination takes over the guest.
        Arrive = "arrive",
        /// The operation was complete when it was requested.
        Done = "done",
    }
}
