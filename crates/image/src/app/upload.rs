//! Uploads the data of an image to a store.
//!
//! ```text
//!            begin                finish
//!   queued ─────────► saving ─────────────► active
//!      ▲                 │ reset after a failure, or by another process after a crash
//!      └─────────────────┘
//! ```
//!
//! `begin` names a new object in the image's row before the store has it. `finish` is one
//! transaction, which begins after the store has made the whole object durable. Therefore an object
//! that no row names is abandoned, and no reader finds an incomplete object. Heartbeats in the row
//! tell every controller that the upload's own controller is alive ([`super::sweep`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kilonova_ids::ImageId;
use kilonova_image_store::ObjectName;
use kilonova_store::Tx;
use kilonova_wire::{Context, time};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::mutable;
use crate::db::images;
use crate::db::uploads::{self, ReceivedData};
use crate::transfer::{ImageData, Pace, Pass, Receiver, TooSlow, format};
use crate::{Error, ImageOptions, ImageRecord, Images, Location};

/// The time between two heartbeats of an upload.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(10);

/// The number of bytes that a project may still add; `None` without a quota.
fn remaining(tx: &mut Tx<'_>, owner: &str, options: &ImageOptions) -> Result<Option<u64>, Error> {
    let Some(quota) = options.storage else { return Ok(None) };
    let used = u64::try_from(images::bytes(tx, owner)?).unwrap_or_default();
    Ok(Some(quota.saturating_sub(used)))
}

fn over_quota(size: u64, remaining: u64) -> Error {
    Error::TooLarge(format!(
        "Image exceeds the storage quota: The size of the data {size} will exceed the limit. {remaining} \
         bytes remaining."
    ))
}

/// The refusal of data that is longer or shorter than announced.
fn another_size(what: &str, expected: u64, size: u64) -> Error {
    Error::Invalid(format!("{what}: expected {expected} bytes, got {size} bytes"))
}

/// An upload to an image.
struct Upload {
    image: ImageId,
    /// The format that the data must have; `None` for the format of the image's row.
    format: Option<String>,
    /// The size of the data in bytes, if the client announced it.
    announced: Option<u64>,
    /// True if this upload replaces one in progress.
    supersedes: bool,
    data: ImageData,
}

impl Images {
    /// Receives an upload from a caller. The work continues in its own task if the client disconnects, so that the
    /// image always ends up either complete or queued.
    pub(crate) async fn upload_for(
        &self,
        context: &Context,
        id: ImageId,
        announced: Option<u64>,
        data: ImageData,
    ) -> Result<(), Error> {
        let (caller, project) = (self.requester(context), context.project_id.clone());
        let (image, remaining) = self
            .store
            .read(move |tx| {
                let image = mutable(tx, &caller, id, "upload_image")?;
                let remaining = remaining(tx, &image.owner, &caller.options)?;
                Ok::<_, Error>((image, remaining))
            })
            .await?;
        if image.disk_format.is_none() || image.container_format.is_none() {
            return Err(Error::Invalid(
                "Properties disk_format, container_format must be set prior to saving data.".into(),
            ));
        }
        if announced.is_some_and(|size| size > self.options.size_cap) {
            return Err(self.too_large());
        }
        if let Some((size, left)) = announced.zip(remaining).filter(|(size, left)| size > left) {
            return Err(over_quota(size, left));
        }
        let pass = self.uploads.enter(&project)?;
        let upload = Upload { image: id, format: None, announced, supersedes: false, data };
        self.spawn(upload, pass).await
    }

    /// Receives the data of a snapshot from a host. The data must be of `format`, which becomes the
    /// image's format. `data` is called only if the host has a free transfer slot.
    ///
    /// A host that sends a snapshot again supersedes its earlier upload, because the controller that was receiving that
    /// upload may have died.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the image has data, [`Error::Busy`], [`Error::TooSlow`], [`Error::Unsupported`] if the
    /// data is in another format, [`Error::TooLarge`], [`Error::Gone`], [`Error::Data`] if the store failed.
    pub async fn receive_snapshot<D: Into<ImageData>>(
        &self,
        id: ImageId,
        format: &str,
        host: &str,
        data: impl FnOnce() -> D,
    ) -> Result<(), Error> {
        let pass = self.snapshots.enter(host)?;
        let upload = Upload {
            image: id,
            format: Some(format.to_owned()),
            announced: None,
            supersedes: true,
            data: data().into(),
        };
        self.spawn(upload, pass).await
    }

    /// Opens a file on this machine as the data of an image.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be opened.
    pub async fn file(&self, path: std::path::PathBuf) -> Result<ImageData, Error> {
        let file = self.threads.run(move || std::fs::File::open(path)).await??;
        Ok(ImageData::file(self.threads.clone(), file))
    }

    async fn spawn(&self, upload: Upload, pass: Pass) -> Result<(), Error> {
        let images = self.clone();
        tokio::spawn(async move {
            let received = images.receive(upload).await;
            drop(pass);
            received
        })
        .await
        .map_err(|e| Error::Io(std::io::Error::other(e)))?
    }

    async fn receive(&self, upload: Upload) -> Result<(), Error> {
        let id = upload.image;
        let location = Location { store: self.stores.default_name(), name: ObjectName::new(id) };
        let name = location.name.clone();
        let image = self.begin(id, &location, upload.supersedes).await?;
        let heartbeats = Heartbeats::start(self.clone(), id, name.clone());
        let created = match self.stores.of(&location) {
            Ok(store) => store.create(&name).await.map_err(Error::from),
            Err(error) => Err(error),
        };
        let object = match created {
            Ok(object) => object,
            Err(error) => {
                self.record_failure(id, &name).await;
                return Err(error);
            }
        };
        let mut receiver = Receiver::start(self.threads.clone(), object);
        let Err(error) = self.fill(&image, upload, &name, &mut receiver, &heartbeats).await else {
            return Ok(());
        };
        drop(heartbeats);
        match self.record_failure(id, &name).await {
            RowAfterFailure::Unnamed => {
                let aborted = tokio::time::timeout(super::DELETION_TIMEOUT, receiver.abort()).await;
                if !matches!(aborted, Ok(Ok(()))) {
                    tracing::warn!(image = %id, object = %name, ?aborted, "failed upload: cannot delete the object; the sweep tries again");
                }
                Err(error)
            }
            RowAfterFailure::Completed => Ok(()),
            RowAfterFailure::Unknown => Err(error),
        }
    }

    /// Records that an upload has failed. Returns the resulting state of its row.
    async fn record_failure(&self, id: ImageId, name: &ObjectName) -> RowAfterFailure {
        let own = name.clone();
        let reset = self.store.write(move |tx| Ok::<_, Error>(uploads::reset(tx, id, &own)?));
        match reset.await {
            Ok(false) => RowAfterFailure::Unnamed,
            Ok(true) => RowAfterFailure::Completed,
            Err(error) => {
                tracing::error!(image = %id, %error, "failed upload: cannot reset the image to queued; the sweep resets it");
                RowAfterFailure::Unknown
            }
        }
    }

    async fn begin(
        &self,
        id: ImageId,
        location: &Location,
        supersedes: bool,
    ) -> Result<ImageRecord, Error> {
        let (location, uploader) = (location.clone(), Arc::clone(&self.machine));
        self.store
            .write(move |tx| {
                let begun = uploads::begin(tx, id, &location, &uploader, supersedes, time::now())?;
                let image =
                    images::by_id(tx, id)?.ok_or_else(|| Error::NotFound(id.to_string()))?;
                if begun {
                    return Ok(image);
                }
                Err(Error::Conflict(format!(
                    "Image {id} is {}: only a queued image accepts data.",
                    image.status.as_str()
                )))
            })
            .await
    }

    async fn fill(
        &self,
        image: &ImageRecord,
        upload: Upload,
        name: &ObjectName,
        receiver: &mut Receiver,
        heartbeats: &Heartbeats,
    ) -> Result<(), Error> {
        let mut data = upload.data;
        let format = upload.format.or_else(|| image.disk_format.clone());
        let mut pace = Pace::new(self.options.rate);
        let mut size = 0_u64;
        let (owner, options) = (image.owner.clone(), self.options.clone());
        let remaining = self.store.read(move |tx| remaining(tx, &owner, &options)).await?;
        loop {
            let slow = |slow: TooSlow| Error::TooSlow(format!("The upload was aborted: {slow}."));
            let Ok(next) = tokio::time::timeout_at(pace.end(), data.next()).await else {
                pace.advance(0, Instant::now()).map_err(slow)?;
                continue;
            };
            let Some(chunk) = next else { break };
            let chunk = chunk.map_err(|e| Error::Interrupted(e.to_string()))?;
            size += chunk.len() as u64;
            if size > self.options.size_cap {
                return Err(self.too_large());
            }
            if let Some(expected) = upload.announced.filter(|expected| size > *expected) {
                return Err(another_size("Size exceeds", expected, size));
            }
            if let Some(left) = remaining.filter(|left| size > *left) {
                return Err(over_quota(size, left));
            }
            pace.advance(chunk.len(), Instant::now()).map_err(slow)?;
            if heartbeats.is_ended() {
                return Err(Error::Gone(image.id.to_string()));
            }
            let begun = Instant::now();
            receiver.push(&chunk).await?;
            pace.extend(begun.elapsed());
        }
        if let Some(expected) = upload.announced.filter(|expected| size != *expected) {
            return Err(another_size("Size mismatch", expected, size));
        }
        let received = receiver.end().await?;
        let mut facts = received.data;
        facts.virtual_size =
            format::inspect(&received.head, format.as_deref().unwrap_or_default(), facts.size)?;
        facts.format = format;
        self.finish(image, name, facts).await
    }

    /// Completes an upload. Checks the quota again, because concurrent uploads of the project may have finished.
    async fn finish(
        &self,
        image: &ImageRecord,
        name: &ObjectName,
        received: ReceivedData,
    ) -> Result<(), Error> {
        let (name, id, owner) = (name.clone(), image.id, image.owner.clone());
        let options = self.options.clone();
        self.store
            .write(move |tx| {
                let size = u64::try_from(received.size).unwrap_or_default();
                images::lock_owner(tx, &owner)?;
                if let Some(left) = remaining(tx, &owner, &options)?.filter(|left| size > *left) {
                    return Err(over_quota(size, left));
                }
                if uploads::finish(tx, id, &name, &received, time::now())? {
                    Ok(())
                } else {
                    Err(Error::Gone(id.to_string()))
                }
            })
            .await
    }

    fn too_large(&self) -> Error {
        Error::TooLarge(format!("An image may have at most {} bytes.", self.options.size_cap))
    }
}

/// The state of a failed upload's row.
enum RowAfterFailure {
    /// No row names the object.
    Unnamed,
    /// The upload was completed, although the answer to its last commit was lost.
    Completed,
    /// The database did not answer. The row may name the object, so the object must stay.
    Unknown,
}

/// Writes the heartbeats of an upload until it is dropped.
struct Heartbeats {
    task: JoinHandle<()>,
    ended: Arc<AtomicBool>,
}

impl Heartbeats {
    fn start(images: Images, id: ImageId, name: ObjectName) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&ended);
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(HEARTBEAT_EVERY).await;
                let name = name.clone();
                let written: Result<bool, Error> = images
                    .store
                    .write(move |tx| Ok(uploads::write_heartbeat(tx, id, &name)?))
                    .await;
                match written {
                    Ok(true) => {}
                    Ok(false) => {
                        own.store(true, Ordering::Relaxed);
                        return;
                    }
                    Err(error) => {
                        tracing::warn!(image = %id, %error, "cannot write the heartbeat of an upload; after two minutes without one, the image is queued again");
                    }
                }
            }
        });
        Self { task, ended }
    }

    /// True if the row no longer belongs to this upload.
    fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

impl Drop for Heartbeats {
    fn drop(&mut self) {
        self.task.abort();
    }
}
