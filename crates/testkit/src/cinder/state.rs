//! The state of the fake, and changes to it without the API.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The protocol by which hosts reach the volumes of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// Ceph.
    #[default]
    Rbd,
    /// iSCSI with CHAP.
    Iscsi,
}

/// A volume.
#[derive(Debug, Clone, Default)]
pub struct FakeVolume {
    /// The owning project.
    pub project: String,
    /// `available`, …
    pub status: String,
    /// GiB.
    pub size: i64,
    /// Its other attributes, as the API shows them.
    pub more: Map<String, Value>,
    /// Its protocol.
    pub backend: Backend,
    /// Number of remaining requests that see it as `creating` or `downloading`.
    pub creating: usize,
    /// The image that replaces its data, and its previous status.
    pub reimaged: Option<(String, String)>,
}

/// The attribute of a snapshot with its project.
pub(crate) const PROJECT: &str = "os-extended-snapshot-attributes:project_id";

impl FakeVolume {
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.more.get(key).is_some_and(|value| *value == json!(true) || *value == json!("true"))
    }
}

/// An attachment.
#[derive(Debug, Clone)]
pub struct FakeAttachment {
    /// The volume.
    pub volume: String,
    /// The server.
    pub server: String,
    /// `reserved`, `attaching`, `attached`.
    pub status: String,
    /// The host's connector.
    pub connector: Value,
    /// The order of creation.
    pub number: usize,
}

/// The whole state of the fake.
#[derive(Debug, Default)]
pub struct State {
    /// Number of requests that see a new volume or snapshot as `creating`.
    pub creating: usize,
    /// True if the status of new volumes, and of volumes that are re-imaged, becomes `error`.
    pub creation_fails: bool,
    pub(crate) volumes: BTreeMap<String, FakeVolume>,
    pub(crate) attachments: BTreeMap<String, FakeAttachment>,
    pub(crate) snapshots: BTreeMap<String, Value>,
    /// Number of remaining requests that see a snapshot as `creating`.
    pub(crate) snapshotting: BTreeMap<String, usize>,
    pub(crate) types: Vec<(String, String)>,
    pub(crate) snapshot_limit: Option<i64>,
    /// The ids of attachments that the compute service still lists, which may only be deleted with
    /// a service token. `None` if the compute service does not answer.
    pub listed_by_nova: Option<Vec<String>>,
    pub(crate) number: usize,
    /// Each volume that became available after it was in use, in order.
    pub(crate) freed: Vec<String>,
}

/// A new id in Cinder's form.
pub(crate) fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

impl State {
    /// Adds an available volume of a project with these additional attributes, and returns its id.
    pub fn add_volume(&mut self, project: &str, size: i64, more: Value) -> String {
        let id = new_id();
        let more = more.as_object().cloned().unwrap_or_default();
        let volume = FakeVolume {
            project: project.to_owned(),
            status: "available".to_owned(),
            size,
            more,
            ..FakeVolume::default()
        };
        self.volumes.insert(id.clone(), volume);
        id
    }

    /// Makes hosts reach a volume by iSCSI.
    ///
    /// # Panics
    /// When there is no such volume.
    pub fn use_iscsi(&mut self, volume: &str) {
        self.volumes.get_mut(volume).expect("the volume exists").backend = Backend::Iscsi;
    }

    /// Adds a snapshot of a volume and returns its id.
    ///
    /// # Panics
    /// When there is no such volume.
    pub fn add_snapshot(&mut self, volume: &str) -> String {
        let id = new_id();
        let of = self.volumes.get(volume).expect("the volume exists");
        let snapshot = json!({
            "id": id, "volume_id": volume, "status": "available", "size": of.size, "name": "",
            "description": "", "metadata": {}, PROJECT: of.project,
        });
        self.snapshots.insert(id.clone(), snapshot);
        id
    }

    /// Deletes all snapshots, as their users would.
    pub fn forget_snapshots(&mut self) {
        self.snapshots.clear();
        self.snapshotting.clear();
    }

    /// Adds a volume type and returns its id.
    pub fn add_type(&mut self, name: &str) -> String {
        let id = new_id();
        self.types.push((id.clone(), name.to_owned()));
        id
    }

    /// Limits the number of snapshots.
    pub fn limit_snapshots(&mut self, most: i64) {
        self.snapshot_limit = Some(most);
    }

    /// The snapshots by id.
    pub fn snapshots(&self) -> &BTreeMap<String, Value> {
        &self.snapshots
    }

    /// The volumes by id.
    pub fn volumes(&self) -> &BTreeMap<String, FakeVolume> {
        &self.volumes
    }

    /// The volumes by id, for changes without the API.
    pub fn volumes_mut(&mut self) -> &mut BTreeMap<String, FakeVolume> {
        &mut self.volumes
    }

    /// A volume, for changes without the API.
    ///
    /// # Panics
    /// When there is no such volume.
    pub fn volume_mut(&mut self, id: &str) -> &mut FakeVolume {
        self.volumes.get_mut(id).expect("the volume exists")
    }

    /// The status of a volume; empty if it does not exist.
    pub fn status(&self, id: &str) -> String {
        self.volumes.get(id).map(|volume| volume.status.clone()).unwrap_or_default()
    }

    /// The attachments of a volume, the oldest first: id and attachment.
    pub fn attachments_of(&self, volume: &str) -> Vec<(String, FakeAttachment)> {
        let own = self.attachments.iter().filter(|(_, one)| one.volume == volume);
        let mut own: Vec<_> = own.map(|(id, one)| (id.clone(), one.clone())).collect();
        own.sort_by_key(|(_, one)| one.number);
        own
    }

    /// All attachments.
    pub fn attachments(&self) -> &BTreeMap<String, FakeAttachment> {
        &self.attachments
    }

    /// Deletes the attachments of a volume, as an administrator may.
    pub fn drop_attachments(&mut self, volume: &str) {
        self.attachments.retain(|_, one| one.volume != volume);
        self.settle(volume);
    }

    /// The volumes that became available after being in use, since the last call.
    pub fn take_freed(&mut self) -> Vec<String> {
        std::mem::take(&mut self.freed)
    }

    /// Derives the status of a volume from its attachments.
    pub(crate) fn settle(&mut self, id: &str) {
        let own: Vec<&str> = self
            .attachments
            .values()
            .filter(|one| one.volume == id)
            .map(|one| one.status.as_str())
            .collect();
        let status = match own.as_slice() {
            [] => "available",
            all if all.contains(&"attached") => "in-use",
            all if all.contains(&"attaching") => "attaching",
            _ => "reserved",
        };
        if let Some(volume) = self.volumes.get_mut(id) {
            if status == "available" && volume.status != "available" {
                self.freed.push(id.to_owned());
            }
            volume.status = status.to_owned();
        }
    }
}
