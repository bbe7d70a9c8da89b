//! Snapshots of volumes.

use std::collections::BTreeMap;

use http::Method;
use kilonova_ids::{SnapshotId, VolumeId};
use serde::Deserialize;
use serde_json::json;

use crate::client::Microversion;
use crate::values::{escaped, or_default};
use crate::{Call, Cinder, Error};

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Snapshot {
    /// Its id.
    pub id: SnapshotId,
    /// Its volume.
    pub volume_id: VolumeId,
    /// `available`, `creating`, …
    pub status: String,
    /// Its size in GiB.
    pub size: i64,
    /// Metadata of the user.
    #[serde(default, deserialize_with = "or_default")]
    pub metadata: BTreeMap<String, String>,
}

/// A snapshot to create.
#[derive(Debug, Clone)]
pub struct NewSnapshot {
    /// The volume.
    pub volume: VolumeId,
    /// The name.
    pub name: String,
    /// The description.
    pub description: String,
    /// The metadata.
    pub metadata: BTreeMap<String, String>,
}

/// The number of snapshots of a project, and its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotLimit {
    /// The number of snapshots.
    pub total_snapshots_used: i64,
    /// The limit; negative for none.
    pub max_total_snapshots: i64,
}

impl SnapshotLimit {
    /// True if the project may have this many more snapshots.
    pub fn allows(&self, more: i64) -> bool {
        self.max_total_snapshots < 0 || self.total_snapshots_used + more <= self.max_total_snapshots
    }
}

impl Cinder {
    /// A snapshot.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn snapshot(&self, call: Call<'_>, id: SnapshotId) -> Result<Snapshot, Error> {
        let path = format!("/snapshots/{id}");
        self.one(call, Microversion::BASE, (Method::GET, &path, None), "snapshot").await
    }

    /// The snapshots with this metadata item, of the caller's project or, with the service's own login, of all
    /// projects.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn snapshots_with(
        &self,
        call: Call<'_>,
        key: &str,
        value: &str,
    ) -> Result<Vec<Snapshot>, Error> {
        let filter = escaped(&format!("{{'{key}': '{value}'}}"));
        let everywhere = match call.caller {
            kilonova_keystone::Caller::Own => "&all_tenants=1",
            kilonova_keystone::Caller::User(_) | kilonova_keystone::Caller::Vouched(_) => "",
        };
        let query = format!("?metadata={filter}{everywhere}");
        let version = Microversion::SNAPSHOT_METADATA;
        self.list(call, version, "/snapshots/detail", &query, "snapshots").await
    }

    /// Creates a snapshot, also of a volume in use.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn create_snapshot(
        &self,
        call: Call<'_>,
        new: &NewSnapshot,
    ) -> Result<Snapshot, Error> {
        let body = json!({"snapshot": {
            "volume_id": new.volume, "name": new.name, "description": new.description,
            "force": true, "metadata": new.metadata,
        }});
        let request = (Method::POST, "/snapshots", Some(&body));
        self.one(call, Microversion::BASE, request, "snapshot").await
    }

    /// Deletes a snapshot. False if there is none.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn delete_snapshot(&self, call: Call<'_>, id: SnapshotId) -> Result<bool, Error> {
        let path = format!("/snapshots/{id}");
        match self.send(call, Microversion::BASE, Method::DELETE, &path, None).await {
            Err(error) if error.is_not_found() => Ok(false),
            ended => ended.map(|_| true),
        }
    }

    /// The number of snapshots of the caller's project.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn snapshot_limit(&self, call: Call<'_>) -> Result<SnapshotLimit, Error> {
        #[derive(Deserialize)]
        struct Limits {
            absolute: SnapshotLimit,
        }
        let request = (Method::GET, "/limits", None);
        let limits: Limits = self.one(call, Microversion::BASE, request, "limits").await?;
        Ok(limits.absolute)
    }
}
