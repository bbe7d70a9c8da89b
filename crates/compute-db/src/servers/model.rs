//! The values of a server's row.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kilonova_ids::{HostName, ImageId, ServerId};
use kilonova_node_api::{ImageNumbers, InjectedFile, Key};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{SchedulerHints, shape};
use crate::Error;

/// The life-cycle state of a server (Nova `vm_states.py`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VmState {
    /// Not started yet.
    Building,
    /// Running, with all its devices.
    Active,
    /// Running, with its vCPUs stopped.
    Paused,
    /// Its memory is saved on disk.
    Suspended,
    /// Shut off.
    Stopped,
    /// Running from a rescue image.
    Rescued,
    /// Resized or migrated; the old claim is kept until the confirmation.
    Resized,
    /// Shut off on its host, with an image of its disk.
    Shelved,
    /// Shelved, without a host.
    ShelvedOffloaded,
    /// Deleted, and restorable for a while.
    SoftDeleted,
    /// An operation failed; the fault gives the reason.
    Error,
    /// Deleted; only its row is left.
    Deleted,
}

impl VmState {
    const ALL: [Self; 12] = [
        Self::Building,
        Self::Active,
        Self::Paused,
        Self::Suspended,
        Self::Stopped,
        Self::Rescued,
        Self::Resized,
        Self::Shelved,
        Self::ShelvedOffloaded,
        Self::SoftDeleted,
        Self::Error,
        Self::Deleted,
    ];

    /// Nova's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Building => "building",
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Suspended => "suspended",
            Self::Stopped => "stopped",
            Self::Rescued => "rescued",
            Self::Resized => "resized",
            Self::Shelved => "shelved",
            Self::ShelvedOffloaded => "shelved_offloaded",
            Self::SoftDeleted => "soft-delete",
            Self::Error => "error",
            Self::Deleted => "deleted",
        }
    }

    /// The state with this name.
    ///
    /// # Errors
    /// When there is no such state.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found.ok_or_else(|| shape(format!("unknown VM state {text:?}")))
    }
}

/// The power state of a guest (Nova `power_state.py`), as its host last reported it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub enum PowerState {
    /// There is no guest.
    #[default]
    NoState,
    /// Running.
    Running,
    /// Running, with its vCPUs stopped.
    Paused,
    /// Shut off.
    Shutdown,
    /// Its memory is saved on disk.
    Suspended,
}

impl PowerState {
    const ALL: [Self; 5] =
        [Self::NoState, Self::Running, Self::Paused, Self::Shutdown, Self::Suspended];

    /// Nova's number.
    pub const fn number(self) -> i64 {
        match self {
            Self::NoState => 0,
            Self::Running => 1,
            Self::Paused => 3,
            Self::Shutdown => 4,
            Self::Suspended => 7,
        }
    }
}

impl From<PowerState> for i64 {
    fn from(state: PowerState) -> Self {
        state.number()
    }
}

impl TryFrom<i64> for PowerState {
    type Error = Error;

    fn try_from(number: i64) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|state| state.number() == number);
        found.ok_or_else(|| shape(format!("unknown power state {number}")))
    }
}

macro_rules! task_states {
    ($($name:ident = $text:literal,)*) => {
        /// The current task of a server (Nova `task_states.py`).
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the names are Nova's")]
        pub enum TaskState {
            $($name,)*
        }

        impl TaskState {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Nova's spelling.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

task_states! {
    Scheduling = "scheduling",
    Spawning = "spawning",
    PoweringOn = "powering-on",
    PoweringOff = "powering-off",
    Rebooting = "rebooting",
    RebootPending = "reboot_pending",
    RebootStarted = "reboot_started",
    RebootingHard = "rebooting_hard",
    RebootPendingHard = "reboot_pending_hard",
    RebootStartedHard = "reboot_started_hard",
    Pausing = "pausing",
    Unpausing = "unpausing",
    Suspending = "suspending",
    Resuming = "resuming",
    Rescuing = "rescuing",
    Unrescuing = "unrescuing",
    Rebuilding = "rebuilding",
    RebuildBlockDeviceMapping = "rebuild_block_device_mapping",
    RebuildSpawning = "rebuild_spawning",
    ImageSnapshotPending = "image_snapshot_pending",
    ImageSnapshot = "image_snapshot",
    ImageBackup = "image_backup",
    ImagePendingUpload = "image_pending_upload",
    ImageUploading = "image_uploading",
    Shelving = "shelving",
    ShelvingImagePendingUpload = "shelving_image_pending_upload",
    ShelvingImageUploading = "shelving_image_uploading",
    ShelvingOffloading = "shelving_offloading",
    Unshelving = "unshelving",
    SoftDeleting = "soft-deleting",
    Restoring = "restoring",
    Deleting = "deleting",
    ResizePrep = "resize_prep",
    ResizeMigrating = "resize_migrating",
    ResizeMigrated = "resize_migrated",
    ResizeFinish = "resize_finish",
    ResizeReverting = "resize_reverting",
    Migrating = "migrating",
    UpdatingPassword = "updating_password",
}

impl TaskState {
    /// The task with this name.
    ///
    /// # Errors
    /// When there is no such task.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.iter().copied().find(|task| task.as_str() == text);
        found.ok_or_else(|| shape(format!("unknown task state {text:?}")))
    }
}

/// A lock: only administrators may act on the server until it is unlocked. The owner may unlock it unless an
/// administrator has locked it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// `owner` or `admin`.
    pub by: String,
    /// The reason, from microversion 2.73 on.
    pub reason: Option<String>,
}

/// A copy of the flavor, from the server's creation or resize. Later changes to the flavor do not affect it. Two copies are
/// equal if their contents are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FlavorOf {
    /// Flavor id.
    pub id: String,
    /// The sequence number of the flavor's row, which no other flavor ever has. Copies of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<i64>,
    /// Flavor name.
    pub name: String,
    /// Number of vCPUs.
    pub vcpus: i64,
    /// Memory in MiB.
    pub ram: i64,
    /// Root disk in GiB.
    pub disk: i64,
    /// Ephemeral disk in GiB.
    pub ephemeral: i64,
    /// Swap in MiB.
    pub swap: i64,
    /// Extra specs.
    pub extra_specs: BTreeMap<String, String>,
}

impl FlavorOf {
    /// True if both are copies of one flavor, whose extra specs may have changed in between. A flavor that was deleted and
    /// created again with its id is another one, as upstream, which compares the ids of the rows (`resize` in
    /// `nova/compute/api.py`). Without both numbers, the values that no flavor changes decide.
    pub fn is_same_flavor(&self, other: &Self) -> bool {
        let is_same = match (self.number, other.number) {
            (Some(number), Some(others)) => number == others,
            (None, _) | (_, None) => self.fixed() == other.fixed(),
        };
        self.id == other.id && is_same
    }

    /// The values that no flavor changes.
    fn fixed(&self) -> (&str, &str, [i64; 5]) {
        let Self { id, number: _, name, vcpus, ram, disk, ephemeral, swap, extra_specs: _ } = self;
        (id, name, [*vcpus, *ram, *disk, *ephemeral, *swap])
    }
}

impl PartialEq for FlavorOf {
    fn eq(&self, other: &Self) -> bool {
        self.fixed() == other.fixed() && self.extra_specs == other.extra_specs
    }
}

/// The requested properties of a server; most of them never change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// The flavor.
    pub flavor: FlavorOf,
    /// The sizes of local disks that the request named. A change of the flavor resets them.
    #[serde(default, skip_serializing_if = "LocalDisks::is_unset")]
    pub local_disks: LocalDisks,
    /// The image.
    pub image: Option<ImageId>,
    /// Properties of the image that clients see from microversion 2.98 on.
    pub image_properties: BTreeMap<String, String>,
    /// Key pair name.
    pub key_name: Option<String>,
    /// A copy of the key pair from the server's creation or rebuild.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// Host name inside the guest.
    pub hostname: String,
    /// True if a config drive was requested.
    pub config_drive: bool,
    /// User data in Base64, as the client sent it.
    pub user_data: Option<String>,
    /// Requested availability zone.
    pub availability_zone: Option<String>,
    /// Requested host.
    pub wanted_host: Option<HostName>,
    /// The scheduler hints.
    pub hints: SchedulerHints,
    /// `r-xxxxxxxx`, the same for all servers of one request.
    pub reservation_id: String,
    /// Index within the request.
    pub launch_index: i64,
    /// Access addresses set by the user.
    pub access: [String; 2],
    /// `AUTO` or `MANUAL`.
    pub disk_config: String,
    /// True if it has, or has had, ports. If false, its ports are not looked up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub networked: bool,
    /// The user who created it, according to the token.
    #[serde(default, skip_serializing_if = "Creator::is_unknown")]
    pub creator: Creator,
    /// The EC2 numbers of its images. Servers of earlier versions have none.
    #[serde(default, skip_serializing_if = "ImageNumbers::is_empty")]
    pub image_numbers: ImageNumbers,
    /// True if the operator had configured vendor data services when it was created or rebuilt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dynamic_vendordata: bool,
    /// The files of the request that created it or, if it was rebuilt, of that request, as the client sent them. Hosts get
    /// them for these two only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<InjectedFile>,
}

/// The requested sizes of a server's ephemeral disk and swap disk. `None` means the flavor's size, which is also the
/// maximum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LocalDisks {
    /// Size of the ephemeral disk in GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral_gb: Option<i64>,
    /// Size of the swap disk in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_mb: Option<i64>,
}

impl LocalDisks {
    fn is_unset(&self) -> bool {
        *self == Self::default()
    }
}

impl Spec {
    /// The size of the ephemeral disk in GiB; 0 without one.
    pub fn ephemeral_gb(&self) -> i64 {
        self.local_disks.ephemeral_gb.unwrap_or(self.flavor.ephemeral)
    }

    /// The size of the swap disk in MiB; 0 without one.
    pub fn swap_mb(&self) -> i64 {
        self.local_disks.swap_mb.unwrap_or(self.flavor.swap)
    }

    /// The spec with another flavor. The flavor's sizes of local disks replace the requested ones, unless it is the
    /// same flavor.
    #[must_use]
    pub fn with_flavor(self, flavor: FlavorOf) -> Self {
        let local_disks =
            if flavor == self.flavor { self.local_disks } else { LocalDisks::default() };
        Self { flavor, local_disks, ..self }
    }
}

/// The user who created a server (Nova: `boot_roles`, `owner_user_name` and `owner_project_name` of its
/// system metadata).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Creator {
    /// The names of the user's roles at that time.
    pub roles: Vec<String>,
    /// The user's name.
    pub user_name: String,
    /// The project's name.
    pub project_name: String,
}

impl Creator {
    fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    /// The roles as Nova passes them on.
    pub fn boot_roles(&self) -> String {
        self.roles.join(",")
    }

    /// The user's properties of a snapshot, as far as they are known.
    pub fn snapshot_properties(&self) -> impl Iterator<Item = (&'static str, String)> {
        [
            ("boot_roles", self.boot_roles()),
            ("owner_user_name", self.user_name.clone()),
            ("owner_project_name", self.project_name.clone()),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
    }
}

/// The part of a [`Spec`] that determines whether to look up ports.
#[derive(Deserialize)]
pub(super) struct Networked {
    #[serde(default)]
    pub networked: bool,
}

/// The reason why a server is in `ERROR`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// HTTP-like code; 500, as Nova uses for build failures.
    pub code: u16,
    /// For everyone who may see the server: contains no host names and no text from hosts.
    pub message: String,
    /// When it was recorded; microseconds since 1970 in the row.
    #[serde(with = "jiff::fmt::serde::timestamp::microsecond::required")]
    pub created: Timestamp,
    /// All details, for administrators. `None` in faults stored before the two were separated.
    pub details: Option<String>,
}

/// The message of a fault stored before messages and details were separated.
const LEGACY_MESSAGE: &str = "The server failed. An administrator can see why.";
/// Maximum number of characters of a fault's message, as in Nova.
const MAX_MESSAGE: usize = 255;

impl Fault {
    /// A fault with a public message, and details for administrators.
    pub fn new(message: &str, details: impl Into<String>, now: Timestamp) -> Self {
        let message = short(message, []);
        Self { code: 500, message, created: now, details: Some(details.into()) }
    }

    /// The public text: the message, unless it may contain details for administrators only.
    pub fn owner_message(&self) -> &str {
        if self.details.is_some() { &self.message } else { LEGACY_MESSAGE }
    }
}

/// A text followed by those sentences that fit into the maximum length of a fault's message.
pub fn short<'a>(first: &str, more: impl IntoIterator<Item = &'a str>) -> String {
    let mut text: String = first.chars().take(MAX_MESSAGE).collect();
    let mut left = MAX_MESSAGE.saturating_sub(text.chars().count());
    for sentence in more {
        let long = sentence.chars().count() + 1;
        if long <= left {
            text.push(' ');
            text.push_str(sentence);
            left -= long;
        }
    }
    text
}

/// A server to insert.
#[derive(Debug, Clone)]
pub struct NewServer {
    /// Chosen by the caller.
    pub id: ServerId,
    /// Owner.
    pub project_id: String,
    /// Owner.
    pub user_id: String,
    /// Display name.
    pub name: String,
    /// Description.
    pub description: Option<String>,
    /// Its host; `None` if no valid host was found.
    pub host: Option<HostName>,
    /// The initial state.
    pub vm_state: VmState,
    /// The task state.
    pub task_state: Option<TaskState>,
    /// The requested properties.
    pub spec: Spec,
    /// Metadata.
    pub metadata: BTreeMap<String, String>,
    /// Tags.
    pub tags: Vec<String>,
    /// The fault of an immediate failure.
    pub fault: Option<Fault>,
}

/// A server.
#[derive(Debug, Clone)]
pub struct Server {
    /// Sequence number; grows with time.
    pub seq: i64,
    /// Id.
    pub id: ServerId,
    /// Owner.
    pub project_id: String,
    /// Owner.
    pub user_id: String,
    /// Display name.
    pub name: String,
    /// Description.
    pub description: Option<String>,
    /// Its host.
    pub host: Option<HostName>,
    /// State.
    pub vm_state: VmState,
    /// The task state.
    pub task_state: Option<TaskState>,
    /// The guest's power state.
    pub power_state: PowerState,
    /// The requested properties.
    pub spec: Spec,
    /// Metadata.
    pub metadata: BTreeMap<String, String>,
    /// Tags.
    pub tags: Vec<String>,
    /// The lock, if it is locked.
    pub lock: Option<Lock>,
    /// The fault, if it is in `ERROR`.
    pub fault: Option<Fault>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it was launched.
    pub launched_at: Option<Timestamp>,
    /// The machine type that its host chose, as far as hosts have reported it. A type that its image names takes
    /// precedence.
    pub machine_type: Option<String>,
    /// When it was deleted; set for deleted servers.
    pub deleted_at: Option<Timestamp>,
}

impl Server {
    /// The guest's name in the hypervisor.
    pub fn instance_name(&self) -> String {
        instance_name(self.seq)
    }
}

/// `instance-0000001a`.
pub fn instance_name(seq: i64) -> String {
    format!("instance-{seq:08x}")
}

pub fn to_text(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|e| shape(e.to_string()))
}

pub fn from_text<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|e| shape(format!("server row: {e}")))
}

#[cfg(test)]
mod tests {
    use super::{PowerState, TaskState, VmState};

    #[test]
    fn a_state_that_no_build_writes_is_an_error() {
        for state in VmState::ALL {
            assert_eq!(VmState::parse(state.as_str()).expect("the state is known"), state);
        }
        for state in PowerState::ALL {
            assert_eq!(PowerState::try_from(state.number()).expect("the state is known"), state);
        }
        for state in TaskState::ALL {
            assert_eq!(TaskState::parse(state.as_str()).expect("the state is known"), *state);
        }
        assert!(VmState::parse("ERROR").is_err());
        assert!(VmState::parse("").is_err());
        assert!(PowerState::try_from(2).is_err());
        assert!(serde_json::from_str::<PowerState>("6").is_err());
        assert_eq!(
            serde_json::to_string(&PowerState::Suspended).expect("the state serializes"),
            "7"
        );
        assert!(TaskState::parse("Deleting").is_err());
    }
}
