//! Attachments of volumes to servers.

use std::fmt;

use http::Method;
use kilonova_ids::{AttachmentId, ServerId, VolumeId};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::{Microversion, read};
use crate::{Call, Cinder, Error};

/// The connection data of a volume for a host. It may contain passwords, so it is never shown.
#[derive(Clone, PartialEq, Default, Deserialize)]
#[serde(transparent)]
pub struct ConnectionInfo(pub Value);

impl ConnectionInfo {
    /// True before a host is connected.
    pub fn is_empty(&self) -> bool {
        self.0.as_object().is_none_or(serde_json::Map::is_empty)
    }
}

impl fmt::Debug for ConnectionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectionInfo(..)")
    }
}

/// An attachment.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Attachment {
    /// Its id.
    pub id: AttachmentId,
    /// The volume.
    pub volume_id: VolumeId,
    /// The server; Cinder allows any text.
    #[serde(default, rename = "instance")]
    pub server: Option<String>,
    /// `reserved`, `attaching`, `attached`, ….
    #[serde(default)]
    pub status: String,
    /// The connection data for the host; empty before it is connected.
    #[serde(default)]
    pub connection_info: ConnectionInfo,
}

impl Cinder {
    /// Reserves a volume for a server.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn create_attachment(
        &self,
        call: Call<'_>,
        volume: VolumeId,
        server: ServerId,
    ) -> Result<Attachment, Error> {
        let body = json!({"attachment": {"volume_uuid": volume, "instance_uuid": server}});
        let request = (Method::POST, "/attachments", Some(&body));
        self.one(call, Microversion::COMPLETE, request, "attachment").await
    }

    /// Reserves a volume for a server and connects a host, in one call. This is the only way to connect a
    /// second host to a volume that is not shared, and only for the server that uses it. After the connection
    /// of the host has failed, the reservation may remain.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn create_connected_attachment(
        &self,
        call: Call<'_>,
        volume: VolumeId,
        server: ServerId,
        connector: &Value,
    ) -> Result<Attachment, Error> {
        let attachment =
            json!({"volume_uuid": volume, "instance_uuid": server, "connector": connector});
        let body = json!({"attachment": attachment});
        let request = (Method::POST, "/attachments", Some(&body));
        self.one(call, Microversion::COMPLETE, request, "attachment").await
    }

    /// An attachment.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn attachment(&self, call: Call<'_>, id: AttachmentId) -> Result<Attachment, Error> {
        let path = format!("/attachments/{id}");
        self.one(call, Microversion::COMPLETE, (Method::GET, &path, None), "attachment").await
    }

    /// The attachments of a server. The service's own login reads them in any project.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn attachments_of(
        &self,
        call: Call<'_>,
        server: ServerId,
    ) -> Result<Vec<Attachment>, Error> {
        let everywhere = match call.caller {
            kilonova_keystone::Caller::Own => "&all_tenants=1",
            kilonova_keystone::Caller::User(_) | kilonova_keystone::Caller::Vouched(_) => "",
        };
        let query = format!("?instance_id={server}{everywhere}");
        let (path, version) = ("/attachments/detail", Microversion::COMPLETE);
        self.list(call, version, path, &query, "attachments").await
    }

    /// Connects a host: Cinder exports the volume to the connector, and refuses that with 409 while another
    /// host is connected to a volume that is not shared. Repeated on 500 and 504, as upstream.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn update_attachment(
        &self,
        call: Call<'_>,
        id: AttachmentId,
        connector: &Value,
    ) -> Result<Attachment, Error> {
        let path = format!("/attachments/{id}");
        let body = json!({"attachment": {"connector": connector}});
        let version = Microversion::COMPLETE;
        let answer = self.send_again(call, version, Method::PUT, &path, Some(&body)).await;
        let mut answer = answer?;
        let attachment = answer.get_mut("attachment").map(Value::take).unwrap_or_default();
        read(attachment, format!("PUT {path}"), "attachment")
    }

    /// Records that the server uses the volume.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn complete_attachment(&self, call: Call<'_>, id: AttachmentId) -> Result<(), Error> {
        let path = format!("/attachments/{id}/action");
        let body = json!({"os-complete": null});
        let version = Microversion::COMPLETE;
        self.send_again(call, version, Method::POST, &path, Some(&body)).await.map(drop)
    }

    /// Deletes an attachment. False if there is none. Repeated on 500 and 504, as upstream.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn delete_attachment(&self, call: Call<'_>, id: AttachmentId) -> Result<bool, Error> {
        let path = format!("/attachments/{id}");
        let version = Microversion::COMPLETE;
        match self.send_again(call, version, Method::DELETE, &path, None).await {
            Err(error) if error.is_not_found() => Ok(false),
            ended => ended.map(|_| true),
        }
    }
}
