//! Makes Cinder match the rows and the documents of one server: asks the plan for the next call,
//! makes it, stores its result, and asks again.
//!
//! ```text
//!   volume      creates, re-images and deletes volumes
//!   attachment  reserves attachments, finds them again after a crash, and connects hosts
//!   document    writes the volumes of a document
//! ```
//!
//! A worker leases its server. Before each call, it records the possible outcomes, in case it dies
//! during the call.

mod attachment;
mod document;
mod volume;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use kilonova_cinder::Error as CallError;
use kilonova_compute_db::volumes::{self as rows, AttachmentRow, BlockDevice, Phase, RowId, Taken};
use kilonova_ids::{AttachmentId, BlockDeviceId, ServerId};
use kilonova_node_api::Connection;
use kilonova_store::Tx;
use kilonova_wire::{UserToken, time};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::plan::{Next, Scene};
use super::{Volumes, actions, failed, new_token, scene, until};
use crate::{Compute, Error, flows};

/// Maximum number of servers that the loop processes concurrently, not counting those that wait for Cinder.
const AT_ONCE: u16 = 16;
/// Maximum pause between two attempts.
const LONGEST: Duration = Duration::from_secs(60);

/// The reason why a step failed.
enum StepError {
    /// Another worker leases the server.
    Fenced,
    /// The database failed.
    Store(Error),
    /// Cinder refused, or did not answer.
    Call(CallError),
    /// A retry would not help.
    Permanent(String),
}

impl From<Error> for StepError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<kilonova_compute_db::Error> for StepError {
    fn from(error: kilonova_compute_db::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Processes all servers that are due. Does not wait until Cinder has created a volume or replaced its data: that may
/// take hours, and must not delay the servers that are due next.
///
/// # Errors
/// Store errors only.
pub async fn run(compute: Compute) -> Result<(), Error> {
    let Some(volumes) = compute.volumes.clone() else { return Ok(()) };
    let due = compute.store.read(move |tx| rows::due(tx, time::now())).await?;
    let slots = Arc::new(Semaphore::new(usize::from(AT_ONCE)));
    for server in due {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { break };
        let compute = compute.clone();
        volumes.runtime.spawn(async move {
            if let Err(error) = work_in(&compute, server, Some(slot)).await {
                tracing::warn!(%server, %error, "cannot process a server's volumes; the loop retries");
            }
        });
    }
    // Waits until every worker has ended or returned its slot.
    drop(slots.acquire_many(u32::from(AT_ONCE)).await);
    Ok(())
}

/// Processes one server until no further call is possible, because everything is done or a host must report first, or
/// until a call fails.
///
/// # Errors
/// Store errors only.
pub async fn work(compute: &Compute, server: ServerId) -> Result<(), Error> {
    work_in(compute, server, None).await
}

async fn work_in(compute: &Compute, server: ServerId, slot: Option<Slot>) -> Result<(), Error> {
    let Some(volumes) = compute.volumes.clone() else { return Ok(()) };
    let token = new_token(compute);
    let take = move |tx: &mut Tx<'_>| {
        let now = time::now();
        rows::take(tx, server, now, until(now), &token)
    };
    let Some(taken) = compute.store.write(take).await? else { return Ok(()) };
    let user = volumes.tokens.of(server);
    let mut worker = Worker { compute, volumes, taken, user, known: HashMap::new(), slot };
    match worker.work().await {
        Ok(()) | Err(StepError::Fenced | StepError::Call(_) | StepError::Permanent(_)) => Ok(()),
        Err(StepError::Store(error)) => Err(error),
    }
}

/// A permit for one of the servers that the loop processes concurrently.
type Slot = OwnedSemaphorePermit;

struct Worker<'a> {
    compute: &'a Compute,
    volumes: Arc<Volumes>,
    taken: Taken,
    user: Option<UserToken>,
    /// Connections of this run.
    known: HashMap<AttachmentId, Connection>,
    /// Returned when the worker begins to wait for Cinder.
    slot: Option<Slot>,
}

impl Worker<'_> {
    async fn work(&mut self) -> Result<(), StepError> {
        // A device whose step has failed waits for the next run, and the other devices do not wait for it.
        let mut failed = HashSet::new();
        let (mut reasons, mut unanswered) = (Vec::new(), 0);
        loop {
            let scene = self.look().await?;
            let Some(next) = scene.next(&failed) else {
                if !reasons.is_empty() {
                    return self.retry_later(&reasons.join("; ")).await;
                }
                if self.settle(&scene).await? {
                    return Ok(());
                }
                continue;
            };
            tracing::debug!(server = %self.taken.server, ?next, "the next call for volumes");
            let (why, gives_up) = match self.carry_out(&scene, &next).await {
                Ok(()) => {
                    if failed.is_empty() {
                        self.taken.attempts = 0;
                    }
                    continue;
                }
                Err(error @ (StepError::Fenced | StepError::Store(_))) => return Err(error),
                Err(StepError::Permanent(why)) => (why, true),
                Err(StepError::Call(error)) => {
                    unanswered += u32::from(matches!(error, CallError::NoAnswer(_)));
                    // The guest already has the disk of an attachment that Cinder has to complete: only `complete` decides
                    // that a failure is final.
                    let is_kept = matches!(next, Next::Complete(_));
                    let is_spent = self.taken.attempts + 1 >= self.volumes.options.attempts;
                    (error.to_string(), !is_kept && (error.is_final() || is_spent))
                }
            };
            if gives_up && self.give_up(&scene, &next, &why).await? {
                if failed.is_empty() {
                    self.taken.attempts = 0;
                }
                continue;
            }
            reasons.push(why);
            match scene.device_of(&next) {
                // Each further call would wait for the timeout of a Cinder that is down.
                Some(device) if unanswered < 2 => failed.insert(device),
                _ => return self.retry_later(&reasons.join("; ")).await,
            };
        }
    }

    /// Runs a transaction of this worker; [`StepError::Fenced`] if another worker leases the server.
    async fn write<T: Send + 'static>(
        &mut self,
        work: impl Fn(&mut Tx<'_>, &Compute) -> Result<T, Error> + Send + Sync + 'static,
    ) -> Result<T, StepError> {
        let (compute, taken) = (self.compute.explaining(), self.taken.clone());
        let inner = compute.clone();
        let done = compute
            .write(move |tx| {
                let now = time::now();
                let Some(taken) = rows::renew(tx, &taken, until(now))? else { return Ok(None) };
                Ok(Some((taken, work(tx, &inner)?)))
            })
            .await?;
        let Some((taken, value)) = done else { return Err(StepError::Fenced) };
        self.taken = Taken { attempts: self.taken.attempts, ..taken };
        Ok(value)
    }

    /// Lets the loop continue with other servers, because Cinder may take a long time.
    fn leave_loop(&mut self) {
        self.slot = None;
    }

    /// Renews the lease between two calls of one step, each of which may take the maximum time.
    async fn renew(&mut self) -> Result<(), StepError> {
        self.write(|_, _| Ok(())).await
    }

    async fn look(&mut self) -> Result<Scene, StepError> {
        let (server, was_gone) = (self.taken.server, self.taken.is_gone);
        let scene = self.write(move |tx, compute| {
            scene::read(tx, compute, server, was_gone, None, time::now())
        });
        let mut scene = scene.await?;
        scene.is_gone |= self.taken.is_gone;
        Ok(scene)
    }

    /// Ends the lease of a settled server. False if something has changed.
    async fn settle(&mut self, scene: &Scene) -> Result<bool, StepError> {
        let (taken, compute) = (self.taken.clone(), self.compute.clone());
        let is_empty = scene.devices.is_empty() && scene.attachments.is_empty();
        let settled = self.compute.store.write(move |tx| {
            if !rows::settle(tx, &taken)? {
                return Ok(false);
            }
            if is_empty {
                rows::forget_settled(tx, taken.server)?;
                flows::released(tx, &compute, taken.server, time::now())?;
            }
            Ok::<_, Error>(true)
        });
        Ok(settled.await?)
    }

    /// Ends the lease and schedules another attempt.
    async fn retry_later(&mut self, why: &str) -> Result<(), StepError> {
        let attempts = self.taken.attempts + 1;
        let factor = 1_u32 << (attempts.clamp(1, 10) - 1);
        let pause = self.volumes.options.pause.saturating_mul(factor).min(LONGEST);
        let server = self.taken.server;
        tracing::warn!(%server, attempts, "a call to Cinder for a server failed: {why}; retrying");
        let taken = self.taken.clone();
        let due = time::after(time::now(), SignedDuration::try_from(pause).unwrap_or_default());
        let give = move |tx: &mut Tx<'_>| rows::give_back(tx, &taken, attempts, due);
        self.compute.store.write(give).await?;
        let compute = self.compute.clone();
        self.volumes.runtime.spawn(async move {
            tokio::time::sleep(pause).await;
            super::start(&compute, server);
        });
        Ok(())
    }

    /// Fails the operation that waits for a step. Returns false if no operation waits for it.
    async fn give_up(&mut self, scene: &Scene, next: &Next, why: &str) -> Result<bool, StepError> {
        let (device, host) = match next {
            Next::Reimage(id) | Next::Reserve(id, _) if is_reimaged(scene, *id) => {
                let (server, why) = (self.taken.server, why.to_owned());
                let device = find(scene, *id).and_then(|device| Some((*id, device.reimage?)));
                self.write(move |tx, compute| match device {
                    // Another rebuild has begun meanwhile: this failure does not fail it.
                    Some((id, image)) if !rows::reimages(tx, id, image)? => Ok(()),
                    _ => flows::not_reimaged(tx, compute, server, &why, time::now()),
                })
                .await?;
                return Ok(true);
            }
            Next::Make(id) | Next::Reserve(id, _) => (Some(*id), None),
            Next::Connect(row, host) => {
                let row = scene.attachments.iter().find(|one| one.id == *row);
                (row.map(|row| row.device), Some(host.clone()))
            }
            Next::Join(id, host, _) => (Some(*id), Some(host.clone())),
            Next::Deliver(host) => (None, Some(host.clone())),
            Next::DeleteVolume(id) => {
                // As upstream, logs the failure and continues the deletion of the server.
                tracing::warn!(server = %self.taken.server, "cannot delete a server's volume: {why}");
                if let Some(device) = find(scene, *id) {
                    self.forget(device.clone()).await?;
                }
                return Ok(true);
            }
            Next::RollDetaching(id) => {
                let id = *id;
                self.write(move |tx, _| rolled(tx, id)).await?;
                return Ok(true);
            }
            Next::Reimage(_)
            | Next::Find(_)
            | Next::Complete(_)
            | Next::End(_)
            | Next::Forget(_) => return Ok(false),
        };
        let host = host.or_else(|| {
            let lacking = scene.guests.iter().find(|guest| guest.lacks);
            lacking.map(|guest| guest.host.clone())
        });
        let device = device.and_then(|id| find(scene, id).cloned());
        let (server, why) = (self.taken.server, why.to_owned());
        self.write(move |tx, compute| {
            let now = time::now();
            failed::give_up(tx, compute, server, device.as_ref(), host.as_ref(), &why, now)
        })
        .await
    }

    /// Deletes the row of a device, and ends its action.
    async fn forget(&mut self, device: BlockDevice) -> Result<(), StepError> {
        self.write(move |tx, _| {
            actions::end_with_row(tx, &device, time::now())?;
            Ok(rows::forget(tx, device.id)?)
        })
        .await
    }

    async fn carry_out(&mut self, scene: &Scene, next: &Next) -> Result<(), StepError> {
        match next {
            Next::Make(device) => self.make(device_of(scene, *device)?).await,
            Next::Reserve(device, row) => {
                self.reserve(scene, device_of(scene, *device)?, *row).await
            }
            Next::Find(row) => self.find(scene, row_of(scene, *row)?).await,
            Next::Connect(row, host) => self.connect(scene, row_of(scene, *row)?, host).await,
            Next::Join(device, host, row) => {
                self.join(scene, device_of(scene, *device)?, host, *row).await
            }
            Next::Deliver(host) => self.deliver(scene, host).await,
            Next::Reimage(device) => self.reimage(device_of(scene, *device)?).await,
            Next::Complete(row) => self.complete(scene, row_of(scene, *row)?).await,
            Next::End(row) => {
                let row = row_of(scene, *row)?.clone();
                if let Some(id) = row.attachment {
                    let (client, user) = (&self.volumes.client, self.user.as_ref());
                    let call = |by| client.delete_attachment(by, id);
                    let project = &self.taken.project_id;
                    self.volumes.for_user(user, project, call).await.map_err(StepError::Call)?;
                }
                // Cinder shows the volume as available now, so its rows are deleted immediately.
                let last = scene.last_of(&row).and_then(|id| find(scene, id)).cloned();
                self.write(move |tx, _| {
                    rows::forget_attachment(tx, row.id)?;
                    if let Some(device) = &last {
                        actions::end_with_row(tx, device, time::now())?;
                        rows::forget_in(tx, device.id, device.phase)?;
                    }
                    Ok(())
                })
                .await
            }
            Next::RollDetaching(device) => {
                let device = device_of(scene, *device)?.clone();
                if let Some(volume) = device.volume {
                    let (client, user) = (&self.volumes.client, self.user.as_ref());
                    let call = |by| client.roll_detaching(by, volume);
                    let project = &self.taken.project_id;
                    self.volumes.for_user(user, project, call).await.map_err(StepError::Call)?;
                }
                self.write(move |tx, _| rolled(tx, device.id)).await
            }
            Next::DeleteVolume(device) => self.drop_volume(device_of(scene, *device)?).await,
            Next::Forget(device) => self.forget(device_of(scene, *device)?.clone()).await,
        }
    }
}

fn rolled(tx: &mut Tx<'_>, device: BlockDeviceId) -> Result<(), Error> {
    for from in [Phase::BeginDetaching, Phase::RollDetaching] {
        rows::set_phase(tx, device, from, Phase::Attached, None)?;
    }
    Ok(())
}

fn find(scene: &Scene, id: BlockDeviceId) -> Option<&BlockDevice> {
    scene.devices.iter().find(|device| device.id == id)
}

fn is_reimaged(scene: &Scene, id: BlockDeviceId) -> bool {
    find(scene, id).is_some_and(|device| device.phase == Phase::Reimaging)
}

fn device_of(scene: &Scene, id: BlockDeviceId) -> Result<&BlockDevice, StepError> {
    find(scene, id).ok_or_else(|| StepError::Permanent("the device is gone".into()))
}

fn row_of(scene: &Scene, id: RowId) -> Result<&AttachmentRow, StepError> {
    let row = scene.attachments.iter().find(|row| row.id == id);
    row.ok_or_else(|| StepError::Permanent("the attachment is gone".into()))
}
