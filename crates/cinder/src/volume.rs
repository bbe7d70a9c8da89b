//! Volumes.

use std::collections::BTreeMap;

use http::Method;
use kilonova_ids::{ImageId, SnapshotId, VolumeId};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::Microversion;
use crate::values::{escaped, or_default, truth};
use crate::{Call, Cinder, Error};

/// A volume.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Volume {
    /// Its id.
    pub id: VolumeId,
    /// Its name.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// `available`, `reserved`, `in-use`, …
    pub status: String,
    /// Its size in GiB.
    pub size: i64,
    /// Its description.
    #[serde(default, deserialize_with = "or_default")]
    pub description: String,
    /// Its availability zone.
    #[serde(default, deserialize_with = "or_default")]
    pub availability_zone: String,
    /// Its type.
    #[serde(default)]
    pub volume_type: Option<String>,
    /// True if several servers may use it at once.
    #[serde(default, deserialize_with = "truth")]
    pub multiattach: bool,
    /// True if a server can boot from it.
    #[serde(default, deserialize_with = "truth")]
    pub bootable: bool,
    /// True if it is encrypted.
    #[serde(default, deserialize_with = "truth")]
    pub encrypted: bool,
    /// The properties of the image from which it was created.
    #[serde(default, deserialize_with = "or_default", rename = "volume_image_metadata")]
    pub image_metadata: BTreeMap<String, String>,
    /// Metadata of the user.
    #[serde(default, deserialize_with = "or_default")]
    pub metadata: BTreeMap<String, String>,
    /// Its attachments.
    #[serde(default, deserialize_with = "or_default")]
    pub attachments: Vec<VolumeAttachment>,
}

/// An attachment as its volume shows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct VolumeAttachment {
    /// The server's id.
    #[serde(default, deserialize_with = "or_default")]
    pub server_id: String,
}

/// The source of a new volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeSource {
    /// An image.
    Image(ImageId),
    /// A snapshot.
    Snapshot(SnapshotId),
    /// Nothing.
    Blank,
}

/// A volume to create.
#[derive(Debug, Clone)]
pub struct NewVolume {
    /// Its size in GiB.
    pub size: i64,
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Its type; Cinder's default if there is none.
    pub volume_type: Option<String>,
    /// Its zone; Cinder's default if there is none.
    pub availability_zone: Option<String>,
    /// Its source.
    pub source: VolumeSource,
    /// Its metadata.
    pub metadata: BTreeMap<String, String>,
}

impl Cinder {
    /// A volume.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn volume(&self, call: Call<'_>, id: VolumeId) -> Result<Volume, Error> {
        let path = format!("/volumes/{id}");
        self.one(call, Microversion::BASE, (Method::GET, &path, None), "volume").await
    }

    /// The volumes of the caller's project that have this metadata item.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn volumes_with(
        &self,
        call: Call<'_>,
        key: &str,
        value: &str,
    ) -> Result<Vec<Volume>, Error> {
        let filter = escaped(&format!("{{'{key}': '{value}'}}"));
        let everywhere = match call.caller {
            kilonova_keystone::Caller::Own => "&all_tenants=1",
            kilonova_keystone::Caller::User(_) | kilonova_keystone::Caller::Vouched(_) => "",
        };
        let query = format!("?metadata={filter}{everywhere}");
        self.list(call, Microversion::BASE, "/volumes/detail", &query, "volumes").await
    }

    /// Creates a volume.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn create_volume(&self, call: Call<'_>, new: &NewVolume) -> Result<Volume, Error> {
        let mut volume = json!({
            "size": new.size, "name": new.name, "description": new.description,
            "volume_type": new.volume_type, "availability_zone": new.availability_zone,
            "metadata": new.metadata,
        });
        match new.source {
            VolumeSource::Image(image) => volume["imageRef"] = json!(image),
            VolumeSource::Snapshot(snapshot) => volume["snapshot_id"] = json!(snapshot),
            VolumeSource::Blank => {}
        }
        let body = json!({"volume": volume});
        let request = (Method::POST, "/volumes", Some(&body));
        self.one(call, Microversion::BASE, request, "volume").await
    }

    /// Deletes a volume. False if there is none.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn delete_volume(&self, call: Call<'_>, id: VolumeId) -> Result<bool, Error> {
        let path = format!("/volumes/{id}");
        match self.send(call, Microversion::BASE, Method::DELETE, &path, None).await {
            Err(error) if error.is_not_found() => Ok(false),
            ended => ended.map(|_| true),
        }
    }

    /// Announces that a volume will be detached from a server that uses it.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn begin_detaching(&self, call: Call<'_>, id: VolumeId) -> Result<(), Error> {
        self.act(call, Microversion::BASE, id, json!({"os-begin_detaching": null})).await
    }

    /// Undoes [`Cinder::begin_detaching`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn roll_detaching(&self, call: Call<'_>, id: VolumeId) -> Result<(), Error> {
        self.act(call, Microversion::BASE, id, json!({"os-roll_detaching": null})).await
    }

    /// Begins to replace the data of a volume by an image's. The volume must be `available`, or `reserved` for
    /// a server that waits for it. It is `downloading` in the meantime, and `error` after a failure.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn reimage(&self, call: Call<'_>, id: VolumeId, image: ImageId) -> Result<(), Error> {
        let action = json!({"os-reimage": {"image_id": image, "reimage_reserved": true}});
        self.act(call, Microversion::REIMAGE, id, action).await
    }

    async fn act(
        &self,
        call: Call<'_>,
        microversion: Microversion,
        id: VolumeId,
        action: Value,
    ) -> Result<(), Error> {
        let path = format!("/volumes/{id}/action");
        self.send(call, microversion, Method::POST, &path, Some(&action)).await.map(drop)
    }
}
