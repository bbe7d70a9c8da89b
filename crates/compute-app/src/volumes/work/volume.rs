//! Creates volumes for a server, re-images them, and deletes them with the server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kilonova_cinder::{Call, NewVolume, VolumeSource};
use kilonova_compute_db::volumes::{self as rows, BlockDevice, Source};
use kilonova_ids::VolumeId;
use kilonova_keystone::Caller;
use kilonova_wire::time;

use super::{StepError, Worker};
use crate::flows;

/// A key of volumes' metadata: its value is the id of the row for which the volume was created.
const MADE_FOR: &str = "kilonova_block_device";
/// Maximum time that a worker sleeps before it renews its lease.
const LONGEST_SLEEP: Duration = Duration::from_secs(20);

impl Worker<'_> {
    /// Creates the volume of a device with the user's token, unless an earlier attempt has created it.
    pub(super) async fn make(&mut self, device: &BlockDevice) -> Result<(), StepError> {
        let id = device.id;
        let source = match device.source {
            Source::Volume => return Err(StepError::Permanent("there is no volume".into())),
            Source::Image(image) => VolumeSource::Image(image),
            Source::Snapshot(snapshot) => VolumeSource::Snapshot(snapshot),
            Source::Blank => VolumeSource::Blank,
        };
        let may_exist = !self.write(move |tx, _| Ok(rows::set_sent(tx, id)?)).await?;
        let mut made = None;
        if may_exist {
            made = self.made_for(device).await?;
            self.renew().await?;
        }
        if made.is_none() {
            let Some(token) = self.user.clone() else {
                let why = "the controller was restarted before the volume was created, and the token of \
                           the user is lost; create the server again";
                return Err(StepError::Permanent(why.into()));
            };
            let blank = format!("{}-blank-vol", device.server);
            let new = NewVolume {
                size: device.size_gb,
                name: if device.source == Source::Blank { blank } else { String::new() },
                description: String::new(),
                volume_type: device.volume_type.clone(),
                availability_zone: device.zone.clone(),
                source,
                metadata: BTreeMap::from([(MADE_FOR.to_owned(), id.to_string())]),
            };
            let project = self.taken.project_id.clone();
            let by =
                Call { caller: Caller::Vouched(&token), project: Some(&project), request_id: None };
            let call = self.volumes.client.create_volume(by, &new);
            made = Some(self.volumes.bounded(call).await.map_err(StepError::Call)?);
        }
        let Some(made) = made else { return Ok(()) };
        let (volume, size, shared) = (made.id, made.size, made.multiattach);
        self.write(move |tx, _| Ok(rows::set_volume(tx, id, volume, size, shared)?)).await?;
        Ok(())
    }

    /// The volume that an earlier attempt created for a device.
    async fn made_for(
        &self,
        device: &BlockDevice,
    ) -> Result<Option<kilonova_cinder::Volume>, StepError> {
        let value = device.id.to_string();
        let call = self.volumes.client.volumes_with(Call::OWN, MADE_FOR, &value);
        let found = self.volumes.bounded(call).await.map_err(StepError::Call)?;
        Ok(found.into_iter().find(|one| one.metadata.get(MADE_FOR) == Some(&value)))
    }

    /// Waits until a new volume is available.
    pub(super) async fn wait_until_available(&mut self, volume: VolumeId) -> Result<(), StepError> {
        let (most, pause) =
            (self.volumes.options.allocate_retries.max(1), self.volumes.options.allocate_interval);
        let begun = tokio::time::Instant::now();
        let mut status = String::new();
        for attempt in 1..=most {
            let client = &self.volumes.client;
            let call = |by| client.volume(by, volume);
            let project = &self.taken.project_id;
            let shown = self.volumes.for_user(self.user.as_ref(), project, call).await;
            status = shown.map_err(StepError::Call)?.status;
            match status.as_str() {
                "creating" | "downloading" => {}
                "error" => {
                    return Err(StepError::Permanent(unfinished(
                        volume,
                        begun.elapsed(),
                        attempt,
                        &status,
                    )));
                }
                _ => return Ok(()),
            }
            if self.taken.is_gone {
                return Ok(());
            }
            self.leave_loop();
            let mut left = pause;
            loop {
                let part = left.min(LONGEST_SLEEP);
                tokio::time::sleep(part).await;
                // The server may be deleted meanwhile.
                self.renew().await?;
                left = left.saturating_sub(part);
                if left.is_zero() {
                    break;
                }
            }
        }
        Err(StepError::Permanent(unfinished(volume, begun.elapsed(), most, &status)))
    }

    /// Makes Cinder replace the data of a volume with those of an image, and waits for the result. An attempt after a
    /// crash may repeat the call. If another rebuild replaces this one meanwhile, the next scene contains the other
    /// rebuild's image.
    pub(super) async fn reimage(&mut self, device: &BlockDevice) -> Result<(), StepError> {
        let (Some(volume), Some(image)) = (device.volume, device.reimage) else {
            return Err(StepError::Permanent("there is no volume, or no image".into()));
        };
        let size = u32::try_from(device.size_gb.max(1)).unwrap_or(u32::MAX);
        let most = self.volumes.options.reimage_per_gb.saturating_mul(size);
        let begun = tokio::time::Instant::now();
        let id = device.id;
        // Cinder may still work for an earlier worker, with this image or another one.
        let (mut is_sent, mut was_found) = (false, false);
        loop {
            let reimaged = Arc::clone(&self.volumes);
            // An event that arrives while Cinder answers is not lost.
            let event = reimaged.reimaged.notified();
            tokio::pin!(event);
            event.as_mut().enable();
            let (client, project) = (&self.volumes.client, &self.taken.project_id);
            let call = |by| client.volume(by, volume);
            let shown = self.volumes.for_user(self.user.as_ref(), project, call).await;
            let shown = shown.map_err(StepError::Call)?;
            let is_made_of = shown.image_metadata.get("image_id") == Some(&image.to_string());
            match shown.status.as_str() {
                "downloading" => was_found = true,
                "error" if is_sent || was_found => {
                    return Err(StepError::Permanent(format!(
                        "Cinder could not write image {image} to volume {volume}, whose status is error"
                    )));
                }
                // Cinder would accept the call, but the status stays `error` even after success, and Cinder then
                // connects no host.
                "error" => {
                    return Err(StepError::Permanent(format!(
                        "the status of volume {volume} is already error: look for the cause in Cinder, set the \
                         status (`openstack volume set --state reserved {volume}`), and rebuild the server again"
                    )));
                }
                _ if is_sent || (was_found && is_made_of) => break,
                _ => {
                    if !self.write(move |tx, _| Ok(rows::reimages(tx, id, image)?)).await? {
                        return Ok(());
                    }
                    let (client, project) = (&self.volumes.client, &self.taken.project_id);
                    let call = |by| client.reimage(by, volume, image);
                    let sent = self.volumes.for_user(self.user.as_ref(), project, call).await;
                    sent.map_err(StepError::Call)?;
                    is_sent = true;
                }
            }
            self.renew().await?;
            if self.taken.is_gone {
                return Ok(());
            }
            if begun.elapsed() >= most {
                return Err(StepError::Permanent(format!(
                    "Cinder did not write image {image} to volume {volume} within {} s",
                    most.as_secs()
                )));
            }
            self.leave_loop();
            let pause = self.volumes.options.allocate_interval.min(LONGEST_SLEEP);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = event => {}
            }
        }
        let server = self.taken.server;
        self.write(move |tx, compute| {
            if !rows::reimages(tx, id, image)? {
                return Ok(());
            }
            rows::end_reimage(tx, server, None)?;
            flows::reimaged(tx, compute, server, time::now())
        })
        .await
    }

    /// Deletes the volume of a device, if Cinder lets the user who deletes the server do so.
    pub(super) async fn drop_volume(&mut self, device: &BlockDevice) -> Result<(), StepError> {
        let volume = match device.volume {
            Some(volume) => Some(volume),
            None => {
                let made = self.made_for(device).await?.map(|made| made.id);
                self.renew().await?;
                made
            }
        };
        if let Some(volume) = volume {
            let client = &self.volumes.client;
            let call = |by| client.delete_volume(by, volume);
            let project = &self.taken.project_id;
            // The deletion may have begun after this worker.
            let user = self.volumes.tokens.of(self.taken.server);
            let deleted = self.volumes.as_allowed(user.as_ref(), project, call).await;
            deleted.map_err(StepError::Call)?;
        }
        self.forget(device.clone()).await
    }
}

/// Nova's message.
fn unfinished(volume: VolumeId, waited: Duration, attempts: u32, status: &str) -> String {
    format!(
        "Volume {volume} did not finish being created even after we waited {} seconds or {attempts} \
         attempts. And its status is {status}.",
        waited.as_secs()
    )
}
