//! Reserves attachments, finds them again after a crash, connects hosts, and completes attachments.

use jiff::Timestamp;
use kilonova_cinder::{Call, Error as CallError};
use kilonova_compute_db::servers;
use kilonova_compute_db::volumes::{
    self as rows, Answered, AttachmentRow, BlockDevice, Phase, Plug, RowId, Source, State,
};
use kilonova_ids::{AttachmentId, HostName, VolumeId};
use kilonova_node_api::Connection;
use kilonova_store::Tx;
use kilonova_wire::time;
use serde_json::{Value, json};

use super::{StepError, Worker, device_of};
use crate::volumes::plan::Scene;
use crate::volumes::{actions, failed};
use crate::{Compute, Error};

impl Worker<'_> {
    /// Reserves the volume of a device.
    pub(super) async fn reserve(
        &mut self,
        scene: &Scene,
        device: &BlockDevice,
        row: Option<RowId>,
    ) -> Result<(), StepError> {
        let Some(volume) = device.volume else { return Ok(()) };
        let has_any = scene.attachments.iter().any(|one| one.device == device.id);
        if device.source != Source::Volume && device.phase == Phase::Attaching && !has_any {
            self.wait_until_available(volume).await?;
            if self.taken.is_gone {
                return Ok(());
            }
        }
        let row = match row {
            Some(row) => {
                if let Some(found) = self.reserved_before(scene, volume).await? {
                    return self.reserved(row, found).await;
                }
                self.renew().await?;
                row
            }
            None => {
                let (row, device) = (RowId::new_v4(), device.clone());
                let add = move |tx: &mut Tx<'_>, _: &Compute| {
                    Ok(rows::add_attachment(tx, row, &device, volume, None)?)
                };
                self.write(add).await?;
                row
            }
        };
        let server = self.taken.server;
        let client = &self.volumes.client;
        let call = |by| client.create_attachment(by, volume, server);
        let project = &self.taken.project_id;
        match self.volumes.for_user(self.user.as_ref(), project, call).await {
            Ok(made) => self.reserved(row, made.id).await,
            Err(error) => {
                if !error.may_have_effect() {
                    self.write(move |tx, _| Ok(rows::forget_attachment(tx, row)?)).await?;
                }
                Err(StepError::Call(error))
            }
        }
    }

    async fn reserved(&mut self, row: RowId, id: AttachmentId) -> Result<(), StepError> {
        self.write(move |tx, _| {
            let to = Answered { attachment: Some(id), host: None, state: State::Reserved };
            Ok(rows::set_attachment(tx, row, State::Reserving, &to)?)
        })
        .await?;
        Ok(())
    }

    /// Finds the id of an attachment of this volume to the server, if Cinder has one that no row records.
    async fn reserved_before(
        &self,
        scene: &Scene,
        volume: VolumeId,
    ) -> Result<Option<AttachmentId>, StepError> {
        let call = self.volumes.client.attachments_of(Call::OWN, self.taken.server);
        let all = self.volumes.bounded(call).await.map_err(StepError::Call)?;
        let is_known =
            |id: AttachmentId| scene.attachments.iter().any(|row| row.attachment == Some(id));
        Ok(all.iter().find(|one| one.volume_id == volume && !is_known(one.id)).map(|one| one.id))
    }

    /// Resolves a reservation whose result is unknown: if Cinder has the attachment, it is ended; otherwise the row is
    /// deleted.
    pub(super) async fn find(
        &mut self,
        scene: &Scene,
        row: &AttachmentRow,
    ) -> Result<(), StepError> {
        let (id, found) = (row.id, self.reserved_before(scene, row.volume).await?);
        self.write(move |tx, _| match found {
            Some(_) => {
                let to = Answered { attachment: found, host: None, state: State::Ending };
                rows::set_attachment(tx, id, State::Reserving, &to)?;
                Ok(())
            }
            None => Ok(rows::forget_attachment(tx, id)?),
        })
        .await
    }

    /// Makes Cinder connect a host.
    pub(super) async fn connect(
        &mut self,
        scene: &Scene,
        row: &AttachmentRow,
        host: &HostName,
    ) -> Result<(), StepError> {
        let Some(id) = row.attachment else { return Ok(()) };
        let device = device_of(scene, row.device)?;
        let (row_id, state, to) = (row.id, row.state, host.clone());
        let connector = self
            .write(move |tx, _| {
                let begun =
                    Answered { attachment: Some(id), host: Some(&to), state: State::Connecting };
                if state != State::Connecting {
                    rows::set_attachment(tx, row_id, state, &begun)?;
                    rows::set_plug(tx, row_id, Plug::None)?;
                }
                Ok(rows::connector(tx, &to)?)
            })
            .await?;
        let connector = connector_of(device, host, connector)?;
        let client = &self.volumes.client;
        let call = |by| client.update_attachment(by, id, &connector);
        let project = &self.taken.project_id;
        let connected = self.volumes.for_user(self.user.as_ref(), project, call).await;
        let info = connected.map_err(StepError::Call)?.connection_info;
        let connection =
            Connection::parse(&info.0).map_err(|why| StepError::Permanent(why.to_string()))?;
        self.known.insert(id, connection);
        let host = host.clone();
        self.write(move |tx, _| {
            let to = Answered { attachment: Some(id), host: Some(&host), state: State::Connected };
            Ok(rows::set_attachment(tx, row_id, State::Connecting, &to)?)
        })
        .await?;
        Ok(())
    }

    /// Makes Cinder connect a second host, for a live migration. Unless the volume is shared,
    /// Cinder refuses to do this for an existing attachment, so the call that creates the attachment
    /// includes the connector.
    pub(super) async fn join(
        &mut self,
        scene: &Scene,
        device: &BlockDevice,
        host: &HostName,
        row: Option<RowId>,
    ) -> Result<(), StepError> {
        let Some(volume) = device.volume else { return Ok(()) };
        if row.is_some() {
            // The attachment may exist without a host: Cinder keeps it when it fails to connect the host.
            while let Some(found) = self.reserved_before(scene, volume).await? {
                let (client, user) = (&self.volumes.client, self.user.as_ref());
                let call = |by| client.delete_attachment(by, found);
                let project = &self.taken.project_id;
                self.volumes.for_user(user, project, call).await.map_err(StepError::Call)?;
            }
        }
        let (is_new, row) = (row.is_none(), row.unwrap_or_else(RowId::new_v4));
        let (one, to) = (device.clone(), host.clone());
        let connector = self
            .write(move |tx, _| {
                if is_new {
                    rows::add_attachment(tx, row, &one, volume, Some(&to))?;
                }
                Ok(rows::connector(tx, &to)?)
            })
            .await?;
        let connector = connector_of(device, host, connector)?;
        let (server, client) = (self.taken.server, &self.volumes.client);
        let call = |by| client.create_connected_attachment(by, volume, server, &connector);
        let project = &self.taken.project_id;
        let made = match self.volumes.for_user(self.user.as_ref(), project, call).await {
            Ok(made) => made,
            Err(error) => {
                if !error.may_have_effect() {
                    self.write(move |tx, _| Ok(rows::forget_attachment(tx, row)?)).await?;
                }
                return Err(StepError::Call(error));
            }
        };
        let (id, host) = (made.id, host.clone());
        self.write(move |tx, _| {
            let to = Answered { attachment: Some(id), host: Some(&host), state: State::Connected };
            Ok(rows::set_attachment(tx, row, State::Reserving, &to)?)
        })
        .await?;
        let connection = Connection::parse(&made.connection_info.0)
            .map_err(|why| StepError::Permanent(why.to_string()))?;
        self.known.insert(id, connection);
        Ok(())
    }

    /// Reports to Cinder that the server uses a volume. The guest already has the disk, and may have written to it for as
    /// long as Cinder did not answer. If Cinder refuses, an attachment that a user requested fails, as upstream
    /// (`_volume_attach` in `nova/virt/block_device.py`), provided that Cinder's list confirms it. Any other refusal is
    /// logged, and the server keeps the volume.
    pub(super) async fn complete(
        &mut self,
        scene: &Scene,
        row: &AttachmentRow,
    ) -> Result<(), StepError> {
        let device = device_of(scene, row.device)?;
        let mut refused = None;
        if let Some(id) = row.attachment {
            let (client, user) = (&self.volumes.client, self.user.as_ref());
            let call = |by| client.complete_attachment(by, id);
            let project = &self.taken.project_id;
            match self.volumes.for_user(user, project, call).await {
                Ok(()) => {}
                Err(error) if error.is_final() => {
                    let is_confirmed = self.is_incomplete(device, id, &error).await?;
                    refused = Some((error.to_string(), is_confirmed));
                }
                Err(error) => return Err(StepError::Call(error)),
            }
        }
        let (device, row) = (device.clone(), row.clone());
        self.write(move |tx, _| {
            let now = time::now();
            let Some((why, is_confirmed)) = &refused else {
                return completed(tx, &row, &device, now);
            };
            if *is_confirmed && is_attached_by_user(tx, &device)? {
                return failed::fail_attach(tx, &device, why, now);
            }
            tracing::warn!(
                server = %row.server, volume = %row.volume,
                "Cinder does not complete an attachment, which the server keeps: {why}"
            );
            completed(tx, &row, &device, now)
        })
        .await
    }

    /// True if Cinder's list of the server's attachments confirms that Cinder does not complete this one, and the
    /// attachment may therefore fail. A root disk, a volume that was created for the server and a volume that was in
    /// use before never fail.
    async fn is_incomplete(
        &mut self,
        device: &BlockDevice,
        id: AttachmentId,
        error: &CallError,
    ) -> Result<bool, StepError> {
        let status = error.status().map(|status| status.as_u16());
        let may_fail = device.phase == Phase::Attaching
            && device.source == Source::Volume
            && !device.is_root()
            && matches!(status, Some(400 | 404));
        if !may_fail {
            return Ok(false);
        }
        self.renew().await?;
        let call = self.volumes.client.attachments_of(Call::OWN, self.taken.server);
        match self.volumes.bounded(call).await {
            Ok(all) => Ok(match all.iter().find(|one| one.id == id) {
                Some(one) => !error.is_not_found() && one.status != "attached",
                None => true,
            }),
            Err(unread) if unread.is_final() => {
                tracing::warn!(server = %self.taken.server, error = %unread, "cannot list the attachments of a server");
                Ok(false)
            }
            Err(unread) => Err(StepError::Call(unread)),
        }
    }

    /// True if Cinder confirms that the server does not have an attachment. False if Cinder does not answer.
    pub(super) async fn is_unknown(&mut self, id: AttachmentId) -> Result<bool, StepError> {
        let call = self.volumes.client.attachments_of(Call::OWN, self.taken.server);
        let all = self.volumes.bounded(call).await;
        self.renew().await?;
        Ok(all.is_ok_and(|all| all.iter().all(|one| one.id != id)))
    }
}

fn completed(
    tx: &mut Tx<'_>,
    row: &AttachmentRow,
    device: &BlockDevice,
    now: Timestamp,
) -> Result<(), Error> {
    let to =
        Answered { attachment: row.attachment, host: row.host.as_ref(), state: State::Complete };
    rows::set_attachment(tx, row.id, row.state, &to)?;
    if rows::set_phase(tx, row.device, Phase::Attaching, Phase::Attached, None)? {
        actions::end(tx, device, now)?;
    }
    Ok(())
}

/// True if a user attached the volume to an existing server. The rows of the volumes that a boot names are written
/// before the server's row.
fn is_attached_by_user(tx: &mut Tx<'_>, device: &BlockDevice) -> Result<bool, Error> {
    let server = servers::find(tx, device.server)?;
    Ok(server.is_some_and(|server| device.created_at > server.created_at))
}

/// The connector of a host, with the mount point of a disk there.
fn connector_of(
    device: &BlockDevice,
    host: &HostName,
    stored: Option<String>,
) -> Result<Value, StepError> {
    let connector = stored.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let Some(mut connector) = connector.filter(Value::is_object) else {
        return Err(StepError::Permanent(format!("host {host} cannot attach volumes")));
    };
    connector["mountpoint"] = json!(format!("/dev/{}", device.device));
    Ok(connector)
}
