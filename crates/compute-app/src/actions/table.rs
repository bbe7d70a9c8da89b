//! The table: a row for each server action. Similar actions share a base row, and their rows contain
//! only the differences.

use VmState::{
    Active, Error, Paused, Rescued, Resized, Shelved, ShelvedOffloaded, SoftDeleted, Stopped,
    Suspended,
};
use kilonova_access::{changed, rule};
use kilonova_compute_db::servers::{TaskState, VmState};
use kilonova_node_api::GuestVerb;

use super::bodies;
use super::row::{Body, HostRule, Request, Requires, Row, Tasks};
use crate::flows::operation::Action;
use crate::microversions::{
    ABORT_LIVE_MIGRATION, ADDRESS_ACTIONS_GONE, ALWAYS, CRASH_DUMP, FORCE_COMPLETE,
    MIGRATE_TO_HOST, REMOTE_CONSOLES, TAGS, before, since,
};
use crate::rules::{ADMIN, MANAGER, MEMBER, OWNER, PROJECT};

/// An empty row, as the base of the others.
const ROW: Row = Row {
    request: Request::Body(""),
    span: ALWAYS,
    rules: &[],
    host_rule: None,
    requires: None,
    refused_as: "",
    recorded_as: None,
    task: None,
    event: None,
    body: Body::Ignored,
    host_does: None,
    command: None,
    about: "",
};

/// Requires a server that has run, is not locked and has no task.
const REQUIRES: Requires =
    Requires { states: &[], tasks: Tasks::None, launched: true, lock: true, host: false };

const fn states(states: &'static [VmState]) -> Option<Requires> {
    Some(Requires { states, ..REQUIRES })
}

const fn on_host(states: &'static [VmState]) -> Option<Requires> {
    Some(Requires { states, host: true, ..REQUIRES })
}

const fn despite_lock(states: &'static [VmState]) -> Option<Requires> {
    Some(Requires { states, lock: false, ..REQUIRES })
}

/// Tasks that a hard reboot replaces, so that it can recover a guest that does not answer.
const REBOOTED_OVER: &[TaskState] = &[
    TaskState::Rebooting,
    TaskState::RebootPending,
    TaskState::RebootStarted,
    TaskState::RebootingHard,
    TaskState::Resuming,
    TaskState::Unpausing,
    TaskState::Pausing,
    TaskState::Suspending,
];

/// States in which a server's volumes may change.
const WITH_VOLUMES: &[VmState] =
    &[Active, Paused, Stopped, Resized, SoftDeleted, Shelved, ShelvedOffloaded];
const SETTLED: &[VmState] = &[Active, Stopped, Paused, Suspended];
const ANY_TASK: Requires = Requires { tasks: Tasks::Any, ..REQUIRES };

const REBOOT: Row = Row {
    request: Request::Body("reboot"),
    rules: &[rule("os_compute_api:servers:reboot", MEMBER, PROJECT)],
    requires: states(&[Active]),
    refused_as: "reboot",
    recorded_as: Some(Action::Reboot),
    task: Some(TaskState::Rebooting),
    event: Some("compute_reboot_instance"),
    body: Body::Schema(bodies::reboot),
    host_does: Some("restart the guest"),
    command: Some("openstack server reboot"),
    about: "Restarts the guest's operating system.",
    ..ROW
};

const DELETE: Row = Row {
    request: Request::Route("DELETE /servers/{id}"),
    rules: &[rule("os_compute_api:servers:delete", MEMBER, PROJECT)],
    requires: Some(Requires { launched: false, ..ANY_TASK }),
    refused_as: "delete",
    recorded_as: Some(Action::Delete),
    task: Some(TaskState::Deleting),
    event: Some("compute_soft_delete_instance"),
    host_does: Some("remove the guest"),
    command: Some("openstack server delete"),
    about: "Deletes the server, immediately or after `reclaim_instance_interval`.",
    ..ROW
};

const CREATE_IMAGE: Row = Row {
    request: Request::Body("createImage"),
    rules: &[
        rule("os_compute_api:servers:create_image", MEMBER, PROJECT),
        rule("os_compute_api:servers:create_image:allow_volume_backed", MEMBER, PROJECT),
    ],
    requires: despite_lock(SETTLED),
    refused_as: "createImage",
    recorded_as: Some(Action::CreateImage),
    task: Some(TaskState::ImageSnapshotPending),
    event: Some("compute_snapshot_instance"),
    body: Body::Schema(bodies::create_image),
    host_does: Some("upload a snapshot of the guest's disk"),
    command: Some("openstack server image create"),
    about: "Makes an image of the server's disk.",
    ..ROW
};

const ADD_FLOATING_IP: Row = Row {
    request: Request::Body("addFloatingIp"),
    span: before(ADDRESS_ACTIONS_GONE),
    rules: &[changed("os_compute_api:os-floating-ips:add", MEMBER, OWNER, PROJECT)],
    about: "Refused: addresses belong to ports.",
    ..ROW
};

const VNC_CONSOLE: Row = Row {
    request: Request::Body("os-getVNCConsole"),
    span: before(REMOTE_CONSOLES),
    rules: &[rule("os_compute_api:os-remote-consoles", MEMBER, PROJECT)],
    body: Body::Schema(bodies::console),
    about: "Shows the URL of a console on the guest's display.",
    ..ROW
};

macro_rules! table {
    (
        $($name:ident = $row:expr;)*
        @$group:ident($inner:ident) { $($member:ident = $member_row:expr;)* }
        $($later:ident = $later_row:expr;)*
    ) => {
        /// An operation on an existing server.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "each row of the table has a description")]
        pub enum ServerAction {
            $($name,)*
            $group($inner),
            $($later,)*
        }

        impl ServerAction {
            /// All actions, in the order of the table.
            pub const ALL: &[Self] = &[
                $(Self::$name,)*
                $(Self::$group($inner::$member),)*
                $(Self::$later,)*
            ];

            /// The row of the action.
            pub const fn row(self) -> &'static Row {
                match self {
                    $(Self::$name => {
                        const THE_ROW: &Row = &$row;
                        THE_ROW
                    })*
                    $(Self::$group($inner::$member) => {
                        const THE_ROW: &Row = &$member_row;
                        THE_ROW
                    })*
                    $(Self::$later => {
                        const THE_ROW: &Row = &$later_row;
                        THE_ROW
                    })*
                }
            }
        }
    };
}

table! {
    Start = Row {
        request: Request::Body("os-start"),
        rules: &[rule("os_compute_api:servers:start", MEMBER, PROJECT)],
        requires: on_host(&[Stopped]),
        refused_as: "start",
        recorded_as: Some(Action::Start),
        task: Some(TaskState::PoweringOn),
        event: Some("compute_start_instance"),
        body: Body::Nothing,
        host_does: Some("start the guest"),
        command: Some("openstack server start"),
        about: "Starts the guest.",
        ..ROW
    };
    Stop = Row {
        request: Request::Body("os-stop"),
        rules: &[rule("os_compute_api:servers:stop", MEMBER, PROJECT)],
        requires: on_host(&[Active, Error]),
        refused_as: "stop",
        recorded_as: Some(Action::Stop),
        task: Some(TaskState::PoweringOff),
        event: Some("compute_stop_instance"),
        body: Body::Nothing,
        host_does: Some("shut the guest off"),
        command: Some("openstack server stop"),
        about: "Shuts the guest off.",
        ..ROW
    };
    Reboot = REBOOT;
    RebootHard = Row {
        request: Request::Variant("reboot", "type HARD"),
        requires: Some(Requires {
            states: &[Active, Stopped, Paused, Suspended, Error],
            tasks: Tasks::Or(REBOOTED_OVER),
            ..REQUIRES
        }),
        task: Some(TaskState::RebootingHard),
        command: Some("openstack server reboot --hard"),
        about: "Destroys the guest and starts it again.",
        ..REBOOT
    };
    Lock = Row {
        request: Request::Body("lock"),
        rules: &[rule("os_compute_api:os-lock-server:lock", MEMBER, PROJECT)],
        recorded_as: Some(Action::Lock),
        body: Body::Schema(bodies::lock),
        command: Some("openstack server lock"),
        about: "Makes the service refuse most actions, except from administrators.",
        ..ROW
    };
    Unlock = Row {
        request: Request::Body("unlock"),
        rules: &[
            rule("os_compute_api:os-lock-server:unlock", MEMBER, PROJECT),
            rule("os_compute_api:os-lock-server:unlock:unlock_override", ADMIN, PROJECT),
        ],
        recorded_as: Some(Action::Unlock),
        command: Some("openstack server unlock"),
        about: "Removes the lock.",
        ..ROW
    };
    Delete = DELETE;
    ForceDelete = Row {
        request: Request::Body("forceDelete"),
        rules: &[changed("os_compute_api:os-deferred-delete:force", MEMBER, OWNER, PROJECT)],
        event: None,
        command: Some("openstack server delete --force"),
        about: "Deletes the server immediately.",
        ..DELETE
    };
    Restore = Row {
        request: Request::Body("restore"),
        rules: &[changed("os_compute_api:os-deferred-delete:restore", MEMBER, OWNER, PROJECT)],
        requires: states(&[SoftDeleted]),
        refused_as: "restore",
        recorded_as: Some(Action::Restore),
        task: Some(TaskState::Restoring),
        event: Some("compute_restore_instance"),
        host_does: Some("start the guest again"),
        command: Some("openstack server restore"),
        about: "Restores a soft-deleted server before it is reclaimed.",
        ..ROW
    };
    Pause = Row {
        request: Request::Body("pause"),
        rules: &[rule("os_compute_api:os-pause-server:pause", MEMBER, PROJECT)],
        requires: states(&[Active]),
        refused_as: "pause",
        recorded_as: Some(Action::Pause),
        task: Some(TaskState::Pausing),
        event: Some("compute_pause_instance"),
        host_does: Some("pause the guest"),
        command: Some("openstack server pause"),
        about: "Stops the guest's vCPUs and keeps its memory.",
        ..ROW
    };
    Unpause = Row {
        request: Request::Body("unpause"),
        rules: &[rule("os_compute_api:os-pause-server:unpause", MEMBER, PROJECT)],
        requires: states(&[Paused]),
        refused_as: "unpause",
        recorded_as: Some(Action::Unpause),
        task: Some(TaskState::Unpausing),
        event: Some("compute_unpause_instance"),
        host_does: Some("unpause the guest"),
        command: Some("openstack server unpause"),
        about: "Resumes the vCPUs of a paused guest.",
        ..ROW
    };
    Suspend = Row {
        request: Request::Body("suspend"),
        rules: &[rule("os_compute_api:os-suspend-server:suspend", MEMBER, PROJECT)],
        requires: states(&[Active]),
        refused_as: "suspend",
        recorded_as: Some(Action::Suspend),
        task: Some(TaskState::Suspending),
        event: Some("compute_suspend_instance"),
        host_does: Some("save the guest's memory to disk"),
        command: Some("openstack server suspend"),
        about: "Writes the guest's memory to disk and stops it.",
        ..ROW
    };
    Resume = Row {
        request: Request::Body("resume"),
        rules: &[rule("os_compute_api:os-suspend-server:resume", MEMBER, PROJECT)],
        requires: states(&[Suspended]),
        refused_as: "resume",
        recorded_as: Some(Action::Resume),
        task: Some(TaskState::Resuming),
        event: Some("compute_resume_instance"),
        host_does: Some("resume the guest"),
        command: Some("openstack server resume"),
        about: "Starts a suspended guest from its memory.",
        ..ROW
    };
    Rescue = Row {
        request: Request::Body("rescue"),
        rules: &[rule("os_compute_api:os-rescue", MEMBER, PROJECT)],
        requires: states(&[Active, Stopped, Error]),
        refused_as: "rescue",
        recorded_as: Some(Action::Rescue),
        task: Some(TaskState::Rescuing),
        event: Some("compute_rescue_instance"),
        body: Body::Schema(bodies::rescue),
        host_does: Some("start the guest from the rescue image"),
        command: Some("openstack server rescue"),
        about: "Boots the server from a rescue image, with its own disk attached.",
        ..ROW
    };
    Unrescue = Row {
        request: Request::Body("unrescue"),
        rules: &[changed("os_compute_api:os-unrescue", MEMBER, OWNER, PROJECT)],
        requires: states(&[Rescued]),
        refused_as: "unrescue",
        recorded_as: Some(Action::Unrescue),
        task: Some(TaskState::Unrescuing),
        event: Some("compute_unrescue_instance"),
        host_does: Some("start the guest from its own disk"),
        command: Some("openstack server unrescue"),
        about: "Boots a rescued server from its own disk.",
        ..ROW
    };
    // The verbs that the host carries out on the guest.
    @Guest(GuestVerb) {
        CrashDump = Row {
            request: Request::Body("trigger_crash_dump"),
            span: since(CRASH_DUMP),
            rules: &[rule("os_compute_api:servers:trigger_crash_dump", MEMBER, PROJECT)],
            requires: states(&[Active, Paused, Rescued, Resized, Error]),
            refused_as: "trigger_crash_dump",
            recorded_as: Some(Action::Guest(GuestVerb::CrashDump)),
            event: Some("compute_trigger_crash_dump"),
            body: Body::Schema(bodies::null),
            host_does: Some("interrupt the guest"),
            command: Some("openstack server dump create"),
            about: "Sends a non-maskable interrupt to the guest.",
            ..ROW
        };
    }
    CreateImage = CREATE_IMAGE;
    CreateBackup = Row {
        request: Request::Body("createBackup"),
        rules: &[rule("os_compute_api:os-create-backup", MEMBER, PROJECT)],
        refused_as: "createBackup",
        recorded_as: Some(Action::CreateBackup),
        task: Some(TaskState::ImageBackup),
        event: Some("compute_backup_instance"),
        body: Body::Schema(bodies::create_backup),
        command: Some("openstack server backup create"),
        about: "Makes an image of the server's disk and deletes the oldest backups.",
        ..CREATE_IMAGE
    };
    Rebuild = Row {
        request: Request::Body("rebuild"),
        rules: &[
            rule("os_compute_api:servers:rebuild", MEMBER, PROJECT),
            rule("os_compute_api:servers:rebuild:trusted_certs", MEMBER, PROJECT),
        ],
        requires: states(&[Active, Stopped, Error]),
        refused_as: "rebuild",
        recorded_as: Some(Action::Rebuild),
        task: Some(TaskState::Rebuilding),
        event: Some("compute_rebuild_instance"),
        body: Body::Schema(bodies::rebuild),
        host_does: Some("rebuild the guest's disk"),
        command: Some("openstack server rebuild"),
        about: "Recreates the server's disk and keeps its devices and addresses.",
        ..ROW
    };
    Shelve = Row {
        request: Request::Body("shelve"),
        rules: &[rule("os_compute_api:os-shelve:shelve", MEMBER, PROJECT)],
        requires: states(SETTLED),
        refused_as: "shelve",
        recorded_as: Some(Action::Shelve),
        task: Some(TaskState::Shelving),
        event: Some("compute_shelve_instance"),
        host_does: Some("shut the guest off and upload a snapshot of its disk"),
        command: Some("openstack server shelve"),
        about: "Shuts the guest off and makes an image of its disk.",
        ..ROW
    };
    ShelveOffload = Row {
        request: Request::Body("shelveOffload"),
        rules: &[rule("os_compute_api:os-shelve:shelve_offload", ADMIN, PROJECT)],
        requires: states(&[Shelved]),
        refused_as: "shelveOffload",
        recorded_as: Some(Action::ShelveOffload),
        task: Some(TaskState::ShelvingOffloading),
        event: Some("compute_shelve_offload_instance"),
        command: Some("openstack server shelve --offload"),
        about: "Removes a shelved server from its host.",
        ..ROW
    };
    Unshelve = Row {
        request: Request::Body("unshelve"),
        rules: &[
            rule("os_compute_api:os-shelve:unshelve", MEMBER, PROJECT),
            rule("os_compute_api:os-shelve:unshelve_to_host", ADMIN, PROJECT),
        ],
        requires: states(&[Shelved, ShelvedOffloaded]),
        refused_as: "unshelve",
        recorded_as: Some(Action::Unshelve),
        task: Some(TaskState::Unshelving),
        event: Some("compute_unshelve_instance"),
        body: Body::Schema(bodies::unshelve),
        host_does: Some("start the guest again"),
        command: Some("openstack server unshelve"),
        about: "Starts a shelved server, on a new host if it was offloaded.",
        ..ROW
    };
    ResetState = Row {
        request: Request::Body("os-resetState"),
        rules: &[rule("os_compute_api:os-admin-actions:reset_state", ADMIN, PROJECT)],
        recorded_as: Some(Action::ResetState),
        body: Body::Schema(bodies::reset_state),
        command: Some("openstack server set --state"),
        about: "Sets the server's state without touching the guest.",
        ..ROW
    };
    ConsoleOutput = Row {
        request: Request::Body("os-getConsoleOutput"),
        rules: &[rule("os_compute_api:os-console-output", MEMBER, PROJECT)],
        requires: Some(Requires { lock: false, host: true, ..ANY_TASK }),
        refused_as: "get_console_output",
        body: Body::Schema(bodies::console_output),
        command: Some("openstack console log show"),
        about: "Shows what the guest wrote to its serial console.",
        ..ROW
    };
    ChangePassword = Row {
        request: Request::Body("changePassword"),
        rules: &[rule("os_compute_api:os-admin-password", MEMBER, PROJECT)],
        requires: states(&[Active]),
        refused_as: "changePassword",
        recorded_as: Some(Action::ChangePassword),
        event: Some("compute_changePassword"),
        body: Body::Schema(bodies::change_password),
        about: "Refused: it needs an agent in the guest.",
        ..ROW
    };
    InjectNetworkInfo = Row {
        request: Request::Body("injectNetworkInfo"),
        rules: &[rule("os_compute_api:os-admin-actions:inject_network_info", ADMIN, PROJECT)],
        about: "Removed, as upstream.",
        ..ROW
    };
    AddFixedIp = Row {
        request: Request::Body("addFixedIp"),
        span: before(ADDRESS_ACTIONS_GONE),
        rules: &[changed("os_compute_api:os-multinic:add", MEMBER, OWNER, PROJECT)],
        requires: Some(Requires { launched: false, ..ANY_TASK }),
        refused_as: "addFixedIp",
        body: Body::Schema(bodies::add_fixed_ip),
        command: Some("openstack server add fixed ip"),
        about: "Adds an address of a network to the server's port there.",
        ..ROW
    };
    RemoveFixedIp = Row {
        request: Request::Body("removeFixedIp"),
        span: before(ADDRESS_ACTIONS_GONE),
        rules: &[changed("os_compute_api:os-multinic:remove", MEMBER, OWNER, PROJECT)],
        requires: Some(Requires { launched: false, ..ANY_TASK }),
        refused_as: "removeFixedIp",
        body: Body::Schema(bodies::remove_fixed_ip),
        command: Some("openstack server remove fixed ip"),
        about: "Removes an address from the server's port.",
        ..ROW
    };
    AddFloatingIp = ADD_FLOATING_IP;
    RemoveFloatingIp = Row {
        request: Request::Body("removeFloatingIp"),
        rules: &[changed("os_compute_api:os-floating-ips:remove", MEMBER, OWNER, PROJECT)],
        ..ADD_FLOATING_IP
    };
    AddSecurityGroup = Row {
        request: Request::Body("addSecurityGroup"),
        rules: &[changed("os_compute_api:os-security-groups:add", MEMBER, OWNER, PROJECT)],
        body: Body::Schema(bodies::security_group),
        command: Some("openstack server add security group"),
        about: "Adds a security group to every port of the server.",
        ..ROW
    };
    RemoveSecurityGroup = Row {
        request: Request::Body("removeSecurityGroup"),
        rules: &[changed("os_compute_api:os-security-groups:remove", MEMBER, OWNER, PROJECT)],
        body: Body::Schema(bodies::security_group),
        command: Some("openstack server remove security group"),
        about: "Removes a security group from every port of the server.",
        ..ROW
    };
    VncConsole = VNC_CONSOLE;
    SpiceConsole = Row {
        request: Request::Body("os-getSPICEConsole"),
        about: "Refused: consoles are VNC and serial.",
        ..VNC_CONSOLE
    };
    RdpConsole = Row {
        request: Request::Body("os-getRDPConsole"),
        about: "Refused: Nova has removed it.",
        ..VNC_CONSOLE
    };
    SerialConsole = Row {
        request: Request::Body("os-getSerialConsole"),
        about: "Shows the URL of a console on the guest's serial port.",
        ..VNC_CONSOLE
    };
    MksConsole = Row {
        request: Request::Body("os-getMKSConsole"),
        about: "Refused: consoles are VNC and serial.",
        ..VNC_CONSOLE
    };
    Resize = Row {
        request: Request::Body("resize"),
        rules: &[
            rule("os_compute_api:servers:resize", MEMBER, PROJECT),
            rule("compute:servers:resize:cross_cell", "!", PROJECT),
        ],
        requires: on_host(&[Active, Stopped]),
        refused_as: "resize",
        recorded_as: Some(Action::Resize),
        task: Some(TaskState::ResizePrep),
        body: Body::Schema(bodies::resize),
        command: Some("openstack server resize --flavor"),
        about: "Changes the server's flavor, on its host or another.",
        ..ROW
    };
    ConfirmResize = Row {
        request: Request::Body("confirmResize"),
        rules: &[rule("os_compute_api:servers:confirm_resize", MEMBER, PROJECT)],
        requires: states(&[Resized]),
        refused_as: "confirmResize",
        recorded_as: Some(Action::ConfirmResize),
        event: Some("compute_confirm_resize"),
        body: Body::Nothing,
        command: Some("openstack server resize confirm"),
        about: "Completes a resize or a cold migration; the server stays where it is now.",
        ..ROW
    };
    RevertResize = Row {
        request: Request::Body("revertResize"),
        rules: &[rule("os_compute_api:servers:revert_resize", MEMBER, PROJECT)],
        requires: states(&[Resized]),
        refused_as: "revertResize",
        recorded_as: Some(Action::RevertResize),
        task: Some(TaskState::ResizeReverting),
        body: Body::Nothing,
        command: Some("openstack server resize revert"),
        about: "Returns a resized or migrated server to its source.",
        ..ROW
    };
    Migrate = Row {
        request: Request::Body("migrate"),
        rules: &[
            rule("os_compute_api:os-migrate-server:migrate", MANAGER, PROJECT),
            rule("os_compute_api:os-migrate-server:migrate:host", ADMIN, PROJECT),
        ],
        host_rule: Some(HostRule {
            rule: "os_compute_api:os-migrate-server:migrate:host",
            span: since(MIGRATE_TO_HOST),
        }),
        requires: on_host(&[Active, Stopped]),
        refused_as: "migrate",
        recorded_as: Some(Action::Migrate),
        task: Some(TaskState::ResizePrep),
        body: Body::Schema(bodies::migrate),
        command: Some("openstack server migrate"),
        about: "Moves the server to another host; the guest is shut off during the move.",
        ..ROW
    };
    LiveMigrate = Row {
        request: Request::Body("os-migrateLive"),
        rules: &[
            rule("os_compute_api:os-migrate-server:migrate_live", MANAGER, PROJECT),
            changed("os_compute_api:os-migrate-server:migrate_live:host", ADMIN, ADMIN, PROJECT),
        ],
        host_rule: Some(HostRule {
            rule: "os_compute_api:os-migrate-server:migrate_live:host",
            span: ALWAYS,
        }),
        requires: states(&[Active, Paused]),
        refused_as: "os-migrateLive",
        recorded_as: Some(Action::LiveMigration),
        task: Some(TaskState::Migrating),
        body: Body::Schema(bodies::live_migrate),
        command: Some("openstack server migrate --live-migration"),
        about: "Moves the running guest to another host.",
        ..ROW
    };
    AbortLiveMigration = Row {
        request: Request::Route("DELETE /servers/{id}/migrations/{number}"),
        span: since(ABORT_LIVE_MIGRATION),
        rules: &[rule("os_compute_api:servers:migrations:delete", MANAGER, PROJECT)],
        requires: Some(Requires { tasks: Tasks::Only(&[TaskState::Migrating]), ..REQUIRES }),
        refused_as: "abort live migration",
        recorded_as: Some(Action::LiveMigrationCancel),
        command: Some("openstack server migration abort"),
        about: "Aborts a live migration; the guest stays on its host.",
        ..ROW
    };
    ForceComplete = Row {
        request: Request::Route("POST /servers/{id}/migrations/{number}/action"),
        span: since(FORCE_COMPLETE),
        rules: &[rule("os_compute_api:servers:migrations:force_complete", MANAGER, PROJECT)],
        requires: Some(Requires {
            states: &[Active],
            tasks: Tasks::Only(&[TaskState::Migrating]),
            ..REQUIRES
        }),
        refused_as: "force_complete",
        recorded_as: Some(Action::LiveMigrationForceComplete),
        command: Some("openstack server migration force complete"),
        about: "Pauses the guest until its live migration is complete.",
        ..ROW
    };
    Evacuate = Row {
        request: Request::Body("evacuate"),
        rules: &[rule("os_compute_api:os-evacuate", ADMIN, PROJECT)],
        requires: Some(Requires { states: &[Active, Stopped, Error], lock: false, ..ANY_TASK }),
        refused_as: "evacuate",
        recorded_as: Some(Action::Evacuate),
        task: Some(TaskState::Rebuilding),
        event: Some("compute_rebuild_instance"),
        body: Body::Schema(bodies::evacuate),
        command: Some("openstack server evacuate"),
        about: "Rebuilds the server on another host after its own has failed.",
        ..ROW
    };
    AttachInterface = Row {
        request: Request::Route("POST /servers/{id}/os-interface"),
        rules: &[changed("os_compute_api:os-attach-interfaces:create", MEMBER, OWNER, PROJECT)],
        requires: on_host(&[Active, Paused, Stopped]),
        refused_as: "attach_interface",
        recorded_as: Some(Action::AttachInterface),
        command: Some("openstack server add port"),
        about: "Connects the server to a port.",
        ..ROW
    };
    DetachInterface = Row {
        request: Request::Route("DELETE /servers/{id}/os-interface/{port}"),
        rules: &[changed("os_compute_api:os-attach-interfaces:delete", MEMBER, OWNER, PROJECT)],
        requires: on_host(&[Active, Paused, Stopped]),
        refused_as: "detach_interface",
        recorded_as: Some(Action::DetachInterface),
        command: Some("openstack server remove port"),
        about: "Disconnects the server from a port.",
        ..ROW
    };
    AttachVolume = Row {
        request: Request::Route("POST /servers/{id}/os-volume_attachments"),
        rules: &[rule("os_compute_api:os-volumes-attachments:create", MEMBER, PROJECT)],
        requires: states(WITH_VOLUMES),
        refused_as: "attach_volume",
        recorded_as: Some(Action::AttachVolume),
        command: Some("openstack server add volume"),
        about: "Attaches a volume of Cinder to the server.",
        ..ROW
    };
    DetachVolume = Row {
        request: Request::Route("DELETE /servers/{id}/os-volume_attachments/{volume}"),
        rules: &[rule("os_compute_api:os-volumes-attachments:delete", MEMBER, PROJECT)],
        requires: states(WITH_VOLUMES),
        refused_as: "detach_volume",
        recorded_as: Some(Action::DetachVolume),
        command: Some("openstack server remove volume"),
        about: "Detaches a volume from the server.",
        ..ROW
    };
    Update = Row {
        request: Request::Route("PUT /servers/{id}"),
        rules: &[rule("os_compute_api:servers:update", MEMBER, PROJECT)],
        refused_as: "update",
        command: Some("openstack server set"),
        about: "Changes the server's name, description, host name or access addresses.",
        ..ROW
    };
    ChangeMetadata = Row {
        request: Request::Route("POST, PUT and DELETE /servers/{id}/metadata"),
        rules: &[
            rule("os_compute_api:server-metadata:create", MEMBER, PROJECT),
            rule("os_compute_api:server-metadata:update_all", MEMBER, PROJECT),
            rule("os_compute_api:server-metadata:update", MEMBER, PROJECT),
            rule("os_compute_api:server-metadata:delete", MEMBER, PROJECT),
        ],
        requires: Some(Requires { states: &[Active, Paused, Suspended, Stopped], ..ANY_TASK }),
        refused_as: "update_instance_metadata",
        command: Some("openstack server set --property"),
        about: "Changes the server's metadata.",
        ..ROW
    };
    ChangeTags = Row {
        request: Request::Route("PUT and DELETE /servers/{id}/tags"),
        span: since(TAGS),
        rules: &[
            rule("os_compute_api:os-server-tags:update_all", MEMBER, PROJECT),
            rule("os_compute_api:os-server-tags:update", MEMBER, PROJECT),
            rule("os_compute_api:os-server-tags:delete_all", MEMBER, PROJECT),
            rule("os_compute_api:os-server-tags:delete", MEMBER, PROJECT),
        ],
        requires: Some(Requires {
            states: &[Active, Paused, Suspended, Stopped],
            launched: false,
            lock: false,
            ..ANY_TASK
        }),
        refused_as: "tags",
        command: Some("openstack server set --tag"),
        about: "Changes the server's tags.",
        ..ROW
    };
}
