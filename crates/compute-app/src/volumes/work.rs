//! Makes Cinder match the rows and the documents of one server: asks the plan for the next call,
//! makes it, stores its result, and asks again.
//!
//! A worker leases its server. Before each call, it records the possible outcomes, in case it dies
//! during the call.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use kilonova_cinder::{Call, Error as CallError, NewVolume, VolumeSource};
use kilonova_compute_db::documents::{self, Delivery};
use kilonova_compute_db::volumes::{
    self as rows, Answered, AttachmentRow, BlockDevice, Phase, Plug, RowId, Source, State, Taken,
};
use kilonova_ids::{AttachmentId, BlockDeviceId, HostName, ServerId, VolumeId};
use kilonova_keystone::Caller;
use kilonova_node_api::{Connection, Desired};
use kilonova_store::Tx;
use kilonova_wire::{UserToken, time};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::plan::{Next, Scene};
use super::{Volumes, documents as composed, failed, new_token, scene, until};
use crate::{Compute, Error};

/// The key of a volume's metadata with the row for which it was created.
const MADE_FOR: &str = "kilonova_block_device";
/// Maximum number of servers that the loop processes concurrently.
const AT_ONCE: usize = 16;
/// Maximum pause between two attempts.
const LONGEST: Duration = Duration::from_secs(60);
/// Maximum time that a worker sleeps before it renews its lease.
const LONGEST_SLEEP: Duration = Duration::from_secs(20);

/// Why a step did not succeed.
enum Trouble {
    /// Another worker leases the server.
    Fenced,
    /// The database failed.
    Store(Error),
    /// Cinder refused, or did not answer.
    Call(CallError),
    /// No repetition helps.
    Final(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<kilonova_compute_db::Error> for Trouble {
    fn from(error: kilonova_compute_db::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Processes all servers that are due.
///
/// # Errors
/// The database's.
pub async fn run(compute: Compute) -> Result<(), Error> {
    let due = compute.store.read(move |tx| rows::due(tx, time::now())).await?;
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = tokio::task::JoinSet::new();
    for server in due {
        let (compute, slots) = (compute.clone(), Arc::clone(&slots));
        running.spawn(async move {
            let Ok(_slot) = slots.acquire().await else { return };
            if let Err(error) = work(&compute, server).await {
                tracing::warn!(%server, %error, "cannot process a server's volumes; the loop retries");
            }
        });
    }
    while running.join_next().await.is_some() {}
    Ok(())
}

/// Processes one server until everything is done, a host has to report first, or a call fails.
///
/// # Errors
/// The database's.
pub async fn work(compute: &Compute, server: ServerId) -> Result<(), Error> {
    let Some(volumes) = compute.volumes.clone() else { return Ok(()) };
    let token = new_token(compute);
    let take = move |tx: &mut Tx<'_>| {
        let now = time::now();
        rows::take(tx, server, now, until(now), &token)
    };
    let Some(taken) = compute.store.write(take).await? else { return Ok(()) };
    let user = volumes.tokens.of(server);
    let mut worker = Worker { compute, volumes, taken, user, known: HashMap::new() };
    match worker.work().await {
        Ok(()) | Err(Trouble::Fenced | Trouble::Call(_) | Trouble::Final(_)) => Ok(()),
        Err(Trouble::Store(error)) => Err(error),
    }
}

struct Worker<'a> {
    compute: &'a Compute,
    volumes: Arc<Volumes>,
    taken: Taken,
    user: Option<UserToken>,
    /// Connections of this run.
    known: HashMap<AttachmentId, Connection>,
}

impl Worker<'_> {
    async fn work(&mut self) -> Result<(), Trouble> {
        loop {
            let scene = self.look().await?;
            let Some(next) = scene.next() else {
                if self.settle(&scene).await? {
                    return Ok(());
                }
                continue;
            };
            tracing::debug!(server = %self.taken.server, ?next, "the next call for volumes");
            match self.carry_out(&scene, &next).await {
                Ok(()) => self.taken.attempts = 0,
                Err(trouble @ (Trouble::Fenced | Trouble::Store(_))) => return Err(trouble),
                Err(Trouble::Final(why)) => {
                    if !self.give_up(&scene, &next, &why).await? {
                        self.retry_later(&why).await?;
                        return Ok(());
                    }
                }
                Err(Trouble::Call(error)) => {
                    let is_spent = self.taken.attempts + 1 >= self.volumes.options.attempts;
                    let why = error.to_string();
                    if (error.is_final() || is_spent) && self.give_up(&scene, &next, &why).await? {
                        self.taken.attempts = 0;
                        continue;
                    }
                    self.retry_later(&why).await?;
                    return Ok(());
                }
            }
        }
    }

    /// Runs a transaction of this worker; [`Trouble::Fenced`] if another one leases the server.
    async fn write<T: Send + 'static>(
        &mut self,
        work: impl Fn(&mut Tx<'_>, &Compute) -> Result<T, Error> + Send + Sync + 'static,
    ) -> Result<T, Trouble> {
        let (compute, taken) = (self.compute.explaining(), self.taken.clone());
        let inner = compute.clone();
        let done = compute
            .write(move |tx| {
                let now = time::now();
                let Some(taken) = rows::renew(tx, &taken, until(now))? else { return Ok(None) };
                Ok(Some((taken, work(tx, &inner)?)))
            })
            .await?;
        let Some((taken, value)) = done else { return Err(Trouble::Fenced) };
        self.taken = Taken { attempts: self.taken.attempts, ..taken };
        Ok(value)
    }

    /// Renews the lease between two calls of one step, each of which may take the maximum time.
    async fn renew(&mut self) -> Result<(), Trouble> {
        self.write(|_, _| Ok(())).await
    }

    async fn look(&mut self) -> Result<Scene, Trouble> {
        let (server, was_gone) = (self.taken.server, self.taken.is_gone);
        let scene = self.write(move |tx, compute| {
            scene::read(tx, compute, server, was_gone, None, time::now())
        });
        let mut scene = scene.await?;
        scene.is_gone |= self.taken.is_gone;
        Ok(scene)
    }

    /// Ends the lease of a settled server. False if something has changed.
    async fn settle(&mut self, scene: &Scene) -> Result<bool, Trouble> {
        let taken = self.taken.clone();
        let is_empty = scene.devices.is_empty() && scene.attachments.is_empty();
        let settled = self.compute.store.write(move |tx| {
            if !rows::settle(tx, &taken)? {
                return Ok(false);
            }
            if is_empty {
                rows::forget_settled(tx, taken.server)?;
            }
            Ok::<_, Error>(true)
        });
        Ok(settled.await?)
    }

    /// Ends the lease until a later attempt.
    async fn retry_later(&mut self, why: &str) -> Result<(), Trouble> {
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

    /// Fails the operation that waits for a step. False if there is none.
    async fn give_up(&mut self, scene: &Scene, next: &Next, why: &str) -> Result<bool, Trouble> {
        let (device, host) = match next {
            Next::Make(id) | Next::Reserve(id, _) => (Some(*id), None),
            Next::Connect(row, host) => {
                let row = scene.attachments.iter().find(|one| one.id == *row);
                (row.map(|row| row.device), Some(host.clone()))
            }
            Next::Join(id, host, _) => (Some(*id), Some(host.clone())),
            Next::Deliver(host) => (None, Some(host.clone())),
            Next::Drop(id) => {
                // As upstream, logs the failure and continues the deletion of the server.
                tracing::warn!(server = %self.taken.server, "cannot delete a server's volume: {why}");
                let id = *id;
                self.write(move |tx, _| Ok(rows::forget(tx, id)?)).await?;
                return Ok(true);
            }
            Next::Complete(row) => {
                tracing::warn!(server = %self.taken.server, "Cinder does not complete an attachment: {why}");
                let row = scene.attachments.iter().find(|one| one.id == *row).cloned();
                let Some(row) = row else { return Ok(false) };
                self.write(move |tx, _| completed(tx, &row)).await?;
                return Ok(true);
            }
            Next::Roll(id) => {
                let id = *id;
                self.write(move |tx, _| rolled(tx, id)).await?;
                return Ok(true);
            }
            Next::Find(_) | Next::End(_) | Next::Forget(_) => return Ok(false),
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

    async fn carry_out(&mut self, scene: &Scene, next: &Next) -> Result<(), Trouble> {
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
            Next::Complete(row) => {
                let row = row_of(scene, *row)?.clone();
                if let Some(id) = row.attachment {
                    let (client, user) = (&self.volumes.client, self.user.as_ref());
                    let call = |by| client.complete_attachment(by, id);
                    let project = &self.taken.project_id;
                    self.volumes.for_user(user, project, call).await.map_err(Trouble::Call)?;
                }
                self.write(move |tx, _| completed(tx, &row)).await
            }
            Next::End(row) => {
                let row = row_of(scene, *row)?.clone();
                if let Some(id) = row.attachment {
                    let (client, user) = (&self.volumes.client, self.user.as_ref());
                    let call = |by| client.delete_attachment(by, id);
                    let project = &self.taken.project_id;
                    self.volumes.for_user(user, project, call).await.map_err(Trouble::Call)?;
                }
                self.write(move |tx, _| Ok(rows::forget_attachment(tx, row.id)?)).await
            }
            Next::Roll(device) => {
                let device = device_of(scene, *device)?.clone();
                if let Some(volume) = device.volume {
                    let (client, user) = (&self.volumes.client, self.user.as_ref());
                    let call = |by| client.roll_detaching(by, volume);
                    let project = &self.taken.project_id;
                    self.volumes.for_user(user, project, call).await.map_err(Trouble::Call)?;
                }
                self.write(move |tx, _| rolled(tx, device.id)).await
            }
            Next::Drop(device) => self.drop_volume(device_of(scene, *device)?).await,
            Next::Forget(device) => {
                let device = *device;
                self.write(move |tx, _| Ok(rows::forget(tx, device)?)).await
            }
        }
    }

    /// Creates the volume of a device with the user's token, unless an earlier attempt has.
    async fn make(&mut self, device: &BlockDevice) -> Result<(), Trouble> {
        let id = device.id;
        let source = match device.source {
            Source::Volume => return Err(Trouble::Final("there is no volume".into())),
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
                return Err(Trouble::Final(why.into()));
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
            made = Some(self.volumes.bounded(call).await.map_err(Trouble::Call)?);
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
    ) -> Result<Option<kilonova_cinder::Volume>, Trouble> {
        let value = device.id.to_string();
        let call = self.volumes.client.volumes_with(Call::OWN, MADE_FOR, &value);
        let found = self.volumes.bounded(call).await.map_err(Trouble::Call)?;
        Ok(found.into_iter().find(|one| one.metadata.get(MADE_FOR) == Some(&value)))
    }

    /// Waits until a new volume is available.
    async fn wait_until_available(&mut self, volume: VolumeId) -> Result<(), Trouble> {
        let (most, pause) =
            (self.volumes.options.allocate_retries.max(1), self.volumes.options.allocate_interval);
        let begun = tokio::time::Instant::now();
        let mut status = String::new();
        for attempt in 1..=most {
            let client = &self.volumes.client;
            let call = |by| client.volume(by, volume);
            let project = &self.taken.project_id;
            let shown = self.volumes.for_user(self.user.as_ref(), project, call).await;
            status = shown.map_err(Trouble::Call)?.status;
            match status.as_str() {
                "creating" | "downloading" => {}
                "error" => {
                    return Err(Trouble::Final(unfinished(
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
        Err(Trouble::Final(unfinished(volume, begun.elapsed(), most, &status)))
    }

    /// Reserves the volume of a device.
    async fn reserve(
        &mut self,
        scene: &Scene,
        device: &BlockDevice,
        row: Option<RowId>,
    ) -> Result<(), Trouble> {
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
                Err(Trouble::Call(error))
            }
        }
    }

    async fn reserved(&mut self, row: RowId, id: AttachmentId) -> Result<(), Trouble> {
        self.write(move |tx, _| {
            let to = Answered { attachment: Some(id), host: None, state: State::Reserved };
            Ok(rows::set_attachment(tx, row, State::Reserving, &to)?)
        })
        .await?;
        Ok(())
    }

    /// An attachment of a volume to the server in Cinder without a row.
    async fn reserved_before(
        &self,
        scene: &Scene,
        volume: VolumeId,
    ) -> Result<Option<AttachmentId>, Trouble> {
        let call = self.volumes.client.attachments_of(Call::OWN, self.taken.server);
        let all = self.volumes.bounded(call).await.map_err(Trouble::Call)?;
        let is_known =
            |id: AttachmentId| scene.attachments.iter().any(|row| row.attachment == Some(id));
        Ok(all.iter().find(|one| one.volume_id == volume && !is_known(one.id)).map(|one| one.id))
    }

    /// Deletes the leftovers of a reservation without an answer.
    async fn find(&mut self, scene: &Scene, row: &AttachmentRow) -> Result<(), Trouble> {
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
    async fn connect(
        &mut self,
        scene: &Scene,
        row: &AttachmentRow,
        host: &HostName,
    ) -> Result<(), Trouble> {
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
        let info = connected.map_err(Trouble::Call)?.connection_info;
        let connection =
            Connection::parse(&info.0).map_err(|why| Trouble::Final(why.to_string()))?;
        self.known.insert(id, connection);
        let host = host.clone();
        self.write(move |tx, _| {
            let to = Answered { attachment: Some(id), host: Some(&host), state: State::Connected };
            Ok(rows::set_attachment(tx, row_id, State::Connecting, &to)?)
        })
        .await?;
        Ok(())
    }

    /// Makes Cinder connect a second host, for a live migration. Cinder refuses that for an
    /// existing attachment, unless the volume is shared, so the reserving call includes the
    /// connector.
    async fn join(
        &mut self,
        scene: &Scene,
        device: &BlockDevice,
        host: &HostName,
        row: Option<RowId>,
    ) -> Result<(), Trouble> {
        let Some(volume) = device.volume else { return Ok(()) };
        if row.is_some() {
            // It may only be reserved: Cinder keeps an attachment whose host it could not connect.
            while let Some(found) = self.reserved_before(scene, volume).await? {
                let (client, user) = (&self.volumes.client, self.user.as_ref());
                let call = |by| client.delete_attachment(by, found);
                let project = &self.taken.project_id;
                self.volumes.for_user(user, project, call).await.map_err(Trouble::Call)?;
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
                return Err(Trouble::Call(error));
            }
        };
        let (id, host) = (made.id, host.clone());
        self.write(move |tx, _| {
            let to = Answered { attachment: Some(id), host: Some(&host), state: State::Connected };
            Ok(rows::set_attachment(tx, row, State::Reserving, &to)?)
        })
        .await?;
        let connection = Connection::parse(&made.connection_info.0)
            .map_err(|why| Trouble::Final(why.to_string()))?;
        self.known.insert(id, connection);
        Ok(())
    }

    /// Writes the volumes of a host's document.
    async fn deliver(&mut self, scene: &Scene, host: &HostName) -> Result<(), Trouble> {
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
        let mut renews = renews && lacks;
        let mut list = Vec::new();
        for (device, row) in scene.deliverable(host) {
            let Some(id) = row.attachment else { continue };
            let connection = match (known.remove(&id), connections.remove(&id)) {
                (Some(connection), _) => connection,
                (None, Some(connection)) if !renews => connection,
                (None, before) => match (self.shown(id).await, before) {
                    (Ok(connection), _) => connection,
                    // While Cinder is unavailable, the guest starts with its last connection data.
                    (Err(Trouble::Call(error)), Some(before)) => {
                        tracing::warn!(%server, attachment = %id, %error, "cannot read a volume's connection data; using the last one");
                        renews = false;
                        before
                    }
                    (Err(trouble), _) => return Err(trouble),
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
            domain.config.volumes = list.iter().map(|(.., volume)| volume.clone()).collect();
            // The ports of the guest may hold the document back too.
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

    /// The connection data of an attachment from Cinder.
    async fn shown(&mut self, id: AttachmentId) -> Result<Connection, Trouble> {
        let client = &self.volumes.client;
        let call = |by| client.attachment(by, id);
        let project = &self.taken.project_id;
        let shown = self.volumes.for_user(self.user.as_ref(), project, call).await;
        self.renew().await?;
        let info = shown.map_err(Trouble::Call)?.connection_info;
        Connection::parse(&info.0).map_err(|why| Trouble::Final(why.to_string()))
    }

    /// Deletes the volume of a device.
    async fn drop_volume(&mut self, device: &BlockDevice) -> Result<(), Trouble> {
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
            let deleted = self.volumes.for_user(self.user.as_ref(), project, call).await;
            deleted.map_err(Trouble::Call)?;
        }
        let id = device.id;
        self.write(move |tx, _| Ok(rows::forget(tx, id)?)).await
    }
}

/// The connector of a host, with the mount point of a disk there.
fn connector_of(
    device: &BlockDevice,
    host: &HostName,
    stored: Option<String>,
) -> Result<Value, Trouble> {
    let connector = stored.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let Some(mut connector) = connector.filter(Value::is_object) else {
        return Err(Trouble::Final(format!("host {host} cannot attach volumes")));
    };
    connector["mountpoint"] = json!(format!("/dev/{}", device.device));
    Ok(connector)
}

fn completed(tx: &mut Tx<'_>, row: &AttachmentRow) -> Result<(), Error> {
    let to =
        Answered { attachment: row.attachment, host: row.host.as_ref(), state: State::Complete };
    rows::set_attachment(tx, row.id, row.state, &to)?;
    rows::set_phase(tx, row.device, Phase::Attaching, Phase::Attached, None)?;
    Ok(())
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

fn device_of(scene: &Scene, id: BlockDeviceId) -> Result<&BlockDevice, Trouble> {
    find(scene, id).ok_or_else(|| Trouble::Final("the device is gone".into()))
}

fn row_of(scene: &Scene, id: RowId) -> Result<&AttachmentRow, Trouble> {
    let row = scene.attachments.iter().find(|row| row.id == id);
    row.ok_or_else(|| Trouble::Final("the attachment is gone".into()))
}

/// Nova's words.
fn unfinished(volume: VolumeId, waited: Duration, attempts: u32, status: &str) -> String {
    format!(
        "Volume {volume} did not finish being created even after we waited {} seconds or {attempts} \
         attempts. And its status is {status}.",
        waited.as_secs()
    )
}
