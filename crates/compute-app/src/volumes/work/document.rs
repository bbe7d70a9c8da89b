//! Writes the volumes of guests to their documents.

use std::collections::HashMap;

use kilonova_compute_db::documents::{self, Delivery};
use kilonova_compute_db::servers;
use kilonova_compute_db::volumes::{self as rows, BlockDevice, Phase, Plug};
use kilonova_ids::{AttachmentId, HostName};
use kilonova_node_api::{Connection, Desired};

use super::{StepError, Worker};
use crate::states;
use crate::volumes::documents as composed;
use crate::volumes::plan::Scene;

impl Worker<'_> {
    /// Writes a guest's volumes to the document of its host.
    pub(super) async fn deliver(
        &mut self,
        scene: &Scene,
        host: &HostName,
    ) -> Result<(), StepError> {
        let server = self.taken.server;
        let (on, mut known) = (host.clone(), self.known.clone());
        let (mut connections, renews) = self
            .write(move |tx, _| {
                let document = documents::get(tx, &on, server)?;
                Ok(match document.map(|document| document.desired) {
                    Some(Desired::Present(domain)) => {
                        (composed::connections(&domain.config.volumes), composed::renews(&domain))
                    }
                    Some(Desired::Absent) | None => (HashMap::new(), false),
                })
            })
            .await?;
        let lacks = scene.guests.iter().any(|guest| guest.host == *host && guest.lacks);
        let is_reboot = renews && lacks;
        let mut renews = is_reboot;
        let mut list = Vec::new();
        for (device, row) in scene.deliverable(host) {
            let Some(id) = row.attachment else { continue };
            let connection = match (known.remove(&id), connections.remove(&id)) {
                (Some(connection), _) => connection,
                (None, Some(connection)) if !renews => connection,
                (None, before) => match self.shown(id).await {
                    Ok(connection) => {
                        self.known.insert(id, connection.clone());
                        connection
                    }
                    Err(StepError::Call(error)) => {
                        if is_reboot && error.is_not_found() && self.is_unknown(id).await? {
                            return self.leave_out(device, id).await;
                        }
                        // While Cinder is unavailable, the guest starts with its last connection data.
                        let Some(before) = before else { return Err(StepError::Call(error)) };
                        tracing::warn!(%server, attachment = %id, %error, "cannot read a volume's connection data; using the last one");
                        renews = false;
                        before
                    }
                    Err(error) => return Err(error),
                },
            };
            if let Some(volume) = composed::connected(device, row, connection) {
                list.push((row.id, row.plug, volume));
            }
        }
        let host = host.clone();
        self.write(move |tx, compute| {
            let document = documents::get(tx, &host, server)?.map(|document| document.desired);
            let Some(Desired::Present(mut domain)) = document else { return Ok(()) };
            if servers::find(tx, server)?.is_some_and(|row| states::has_guest(&row, &host)) {
                domain.require_guest();
            }
            domain.config.volumes = list.iter().map(|(.., volume)| volume.clone()).collect();
            // The document may also be held back until the guest's ports are bound.
            let (document, delivery) = (Desired::Present(domain), Delivery::AsBefore);
            documents::put_as(tx, compute, &host, server, &document, delivery)?;
            for (row, plug, _) in &list {
                if matches!(plug, Plug::None | Plug::Unplugged) {
                    rows::set_plug(tx, *row, Plug::Given)?;
                }
            }
            Ok(())
        })
        .await
    }

    /// Detaches a volume whose attachment Cinder no longer has, before a hard reboot starts the guest
    /// (`_delete_dangling_bdms` in `nova/compute/manager.py`): another server may use the volume by now, so it is not
    /// deleted either. Without its root disk a guest cannot start, so the reboot fails.
    async fn leave_out(&mut self, device: &BlockDevice, id: AttachmentId) -> Result<(), StepError> {
        let volume = device.volume.map_or_else(String::new, |volume| volume.to_string());
        let why = format!("Cinder no longer has the attachment {id} of volume {volume}");
        if device.is_root() {
            return Err(StepError::Permanent(why));
        }
        tracing::warn!(server = %self.taken.server, "{why}; the guest starts without the volume");
        let (device, from) = (device.id, device.phase);
        self.write(move |tx, _| {
            rows::set_phase(tx, device, from, Phase::Detaching, Some(&why))?;
            Ok(())
        })
        .await
    }

    /// The connection data of an attachment from Cinder.
    async fn shown(&mut self, id: AttachmentId) -> Result<Connection, StepError> {
        let client = &self.volumes.client;
        let call = |by| client.attachment(by, id);
        let project = &self.taken.project_id;
        let shown = self.volumes.for_user(self.user.as_ref(), project, call).await;
        self.renew().await?;
        let info = shown.map_err(StepError::Call)?.connection_info;
        Connection::parse(&info.0).map_err(|why| StepError::Permanent(why.to_string()))
    }
}
