//! The values of a server's row.

use std::collections::BTreeMap;

use kilonova_ids::{ImageId, ServerId};
use kilonova_node_api::Key;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::shape;
use crate::Error;

/// Where a server is in its life (Nova `vm_states.py`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VmState {
    /// On its way to the first start.
    Building,
    /// Started; with all its devices.
    Active,
    /// Running, with its processors stopped.
    Paused,
    /// Its memory is on disk.
    Suspended,
    /// Shut off.
    Stopped,
    /// Running from another image, to be mended.
    Rescued,
    /// In its new place or size; the old one is kept until it is confirmed.
    Resized,
    /// Shut off, with an image of its disk, still on its host.
    Shelved,
    /// Shelved, and on no host.
    ShelvedOffloaded,
    /// Deleted, and kept for a while.
    SoftDeleted,
    /// Something failed; the fault says what.
    Error,
    /// Gone; only its row is left.
    Deleted,
}

const VM_STATES: &[(VmState, &str)] = &[
    (VmState::Building, "building"),
    (VmState::Active, "active"),
    (VmState::Paused, "paused"),
    (VmState::Suspended, "suspended"),
    (VmState::Stopped, "stopped"),
    (VmState::Rescued, "rescued"),
    (VmState::Resized, "resized"),
    (VmState::Shelved, "shelved"),
    (VmState::ShelvedOffloaded, "shelved_offloaded"),
    (VmState::SoftDeleted, "soft-delete"),
    (VmState::Error, "error"),
    (VmState::Deleted, "deleted"),
];

impl VmState {
    /// Nova's spelling.
    pub fn as_str(self) -> &'static str {
        VM_STATES.iter().find(|(state, _)| *state == self).map_or("error", |(_, text)| text)
    }

    pub(crate) fn parse(text: &str) -> Self {
        VM_STATES.iter().find(|(_, name)| *name == text).map_or(Self::Error, |(state, _)| *state)
    }
}

/// A lock: only admins act on the server, and whoever set it takes it off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// `owner` or `admin`.
    pub by: String,
    /// Why, from 2.73 on.
    pub reason: Option<String>,
}

/// The flavor as it was when the server was made; later changes of the flavor do not reach it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlavorOf {
    /// Flavor id.
    pub id: String,
    /// Flavor name.
    pub name: String,
    /// Processors.
    pub vcpus: i64,
    /// Memory, MiB.
    pub ram: i64,
    /// Root disk, GiB.
    pub disk: i64,
    /// Ephemeral disk, GiB.
    pub ephemeral: i64,
    /// Swap, MiB.
    pub swap: i64,
    /// Extra specs.
    pub extra_specs: BTreeMap<String, String>,
}

/// What a server was asked to be; most of it never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// The flavor.
    pub flavor: FlavorOf,
    /// The image.
    pub image: Option<ImageId>,
    /// Properties of the image that clients see from 2.98 on.
    pub image_properties: BTreeMap<String, String>,
    /// Key pair name.
    pub key_name: Option<String>,
    /// The key pair as it was then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// Host name inside the guest.
    pub hostname: String,
    /// Whether a config drive was asked for.
    pub config_drive: bool,
    /// Base64, as it came.
    pub user_data: Option<String>,
    /// Zone that was asked for.
    pub availability_zone: Option<String>,
    /// Host that was asked for.
    pub wanted_host: Option<String>,
    /// Scheduler hints as they came.
    pub hints: serde_json::Value,
    /// `r-xxxxxxxx`, the same for all servers of one request.
    pub reservation_id: String,
    /// Place within the request.
    pub launch_index: i64,
    /// Access addresses, as the user set them.
    pub access: [String; 2],
    /// `AUTO` or `MANUAL`.
    pub disk_config: String,
    /// Whether it has, or has had, connections to networks. Nobody looks for those of others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub networked: bool,
}

/// What of a [`Spec`] says whether ports have to be looked for.
#[derive(Deserialize)]
pub(super) struct Networked {
    #[serde(default)]
    pub networked: bool,
}

/// Why a server is in `ERROR`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// HTTP-like code: 500 as Nova uses for build failures.
    pub code: u16,
    /// For anybody who may see the server: no name of a host, nothing that a host said.
    pub message: String,
    /// Microseconds since 1970.
    pub created: i64,
    /// All that is known, for administrators. A fault from before the two were kept apart has none.
    pub details: Option<String>,
}

/// What a fault from before messages and details were kept apart says.
const UNTOLD: &str = "The server failed. An administrator can see why.";
/// Characters of a fault's message, as upstream.
const LONGEST: usize = 255;

impl Fault {
    /// A fault with a message for anybody and the whole truth for administrators.
    pub fn new(message: &str, details: impl Into<String>, now: i64) -> Self {
        let message = short(message, []);
        Self { code: 500, message, created: now, details: Some(details.into()) }
    }

    /// What its owner reads: the message, unless it may say what is not the owner's to know.
    pub fn told(&self) -> &str {
        if self.details.is_some() { &self.message } else { UNTOLD }
    }
}

/// A text and those sentences that find room behind it, within what a fault's message may have.
pub fn short<'a>(first: &str, more: impl IntoIterator<Item = &'a str>) -> String {
    let mut text: String = first.chars().take(LONGEST).collect();
    let mut left = LONGEST.saturating_sub(text.chars().count());
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

/// A server to add.
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
    /// For people.
    pub description: Option<String>,
    /// Where it will run; none when no host was found.
    pub host: Option<String>,
    /// Its first state.
    pub vm_state: VmState,
    /// What is being done.
    pub task_state: Option<&'static str>,
    /// What it was asked to be.
    pub spec: Spec,
    /// Metadata.
    pub metadata: BTreeMap<String, String>,
    /// Tags.
    pub tags: Vec<String>,
    /// Why it failed at once.
    pub fault: Option<Fault>,
}

/// A server.
#[derive(Debug, Clone)]
pub struct Server {
    /// Number; grows with time.
    pub seq: i64,
    /// Id.
    pub id: ServerId,
    /// Owner.
    pub project_id: String,
    /// Owner.
    pub user_id: String,
    /// Display name.
    pub name: String,
    /// For people.
    pub description: Option<String>,
    /// Where it is.
    pub host: Option<String>,
    /// State.
    pub vm_state: VmState,
    /// What is being done.
    pub task_state: Option<String>,
    /// 0 none, 1 running, 3 paused, 4 shut down, 7 suspended.
    pub power_state: i64,
    /// What it was asked to be.
    pub spec: Spec,
    /// Metadata.
    pub metadata: BTreeMap<String, String>,
    /// Tags.
    pub tags: Vec<String>,
    /// Whether it is locked.
    pub lock: Option<Lock>,
    /// Why it is in `ERROR`.
    pub fault: Option<Fault>,
    /// Microseconds since 1970.
    pub created_at: i64,
    /// Microseconds since 1970.
    pub updated_at: i64,
    /// Microseconds since 1970.
    pub launched_at: Option<i64>,
    /// Microseconds since 1970, of a server that is no more.
    pub deleted_at: Option<i64>,
}

impl Server {
    /// Name of the guest at the hypervisor.
    pub fn instance_name(&self) -> String {
        instance_name(self.seq)
    }
}

/// `instance-0000001a`.
pub fn instance_name(seq: i64) -> String {
    format!("instance-{seq:08x}")
}

pub(crate) fn to_text(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|e| shape(e.to_string()))
}

pub(crate) fn from_text<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|e| shape(format!("server row: {e}")))
}
