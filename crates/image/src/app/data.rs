//! Image data: upload, download, and recovery after a crash.
//!
//! ```text
//!            begin                finish
//!   queued ─────────► saving ─────────────► active
//!      ▲                 │ reset after a failure or a crash
//!      └─────────────────┘
//! ```

use std::collections::HashSet;
use std::io::{Read as _, Seek as _, SeekFrom};

use kilonova_ids::ImageId;
use kilonova_store::Tx;
use kilonova_wire::{Context, time};
use tokio::time::Instant;

use super::allowed;
use crate::db::images::{self, ReceivedData};
use crate::files::{Directory, ImageData, Pace, Pass, TooSlow, Writer, data_of, format};
use crate::{Error, ImageOptions, ImageRecord, Images, Status};

/// A range of an image's data, with facts about the whole image.
#[derive(Debug, Clone)]
pub struct DataRange {
    /// Bytes of the whole image.
    pub size: u64,
    /// `raw`, `qcow2`, …
    pub format: Option<String>,
    /// SHA-512 of the whole image.
    pub hash: Option<String>,
    /// The bytes from the requested offset; empty at the end.
    pub bytes: Vec<u8>,
}

/// The bytes that a project may still add; `None` for any number.
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

impl Images {
    /// Receives an upload for a caller. The work continues in its own task if the client disconnects,
    /// so that the image always ends up either complete or queued.
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
                let image = allowed(tx, &caller, id, "upload_image")?;
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
        self.spawn(id, None, data, pass).await
    }

    /// Receives the data of a snapshot from a host. The data must be of `format`, which becomes the
    /// image's format. `data` is called only if the host has a free transfer slot.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the image has data or an upload in progress, [`Error::Busy`],
    /// [`Error::TooSlow`], [`Error::Unsupported`] if the data is of another format,
    /// [`Error::TooLarge`], [`Error::Gone`].
    pub async fn receive_snapshot<D: Into<ImageData>>(
        &self,
        id: ImageId,
        format: &str,
        host: &str,
        data: impl FnOnce() -> D,
    ) -> Result<(), Error> {
        let pass = self.snapshots.enter(host)?;
        self.spawn(id, Some(format.to_owned()), data().into(), pass).await
    }

    /// A file of this machine as the data of an image.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be opened.
    pub async fn file(&self, path: std::path::PathBuf) -> Result<ImageData, Error> {
        let file = self.blocking(move || std::fs::File::open(path)).await??;
        Ok(data_of(self.threads.clone(), file, None))
    }

    async fn spawn(
        &self,
        id: ImageId,
        format: Option<String>,
        data: ImageData,
        pass: Pass,
    ) -> Result<(), Error> {
        let images = self.clone();
        tokio::spawn(async move {
            let received = images.receive(id, format, data).await;
            drop(pass);
            received
        })
        .await
        .map_err(|e| Error::Io(std::io::Error::other(e)))?
    }

    async fn receive(
        &self,
        id: ImageId,
        format: Option<String>,
        data: ImageData,
    ) -> Result<(), Error> {
        let name = Directory::name(id);
        let (directory, own) = (self.directory.clone(), name.clone());
        let file = self.blocking(move || directory.create(&own)).await??;
        let received = match self.begin(id, &name).await {
            Ok(image) => {
                let format = format.or_else(|| image.disk_format.clone());
                self.fill(&image, format, &name, file, data).await
            }
            Err(error) => Err(error),
        };
        if received.is_err() {
            let own = name.clone();
            let reset: Result<(), Error> =
                self.store.write(move |tx| Ok(images::reset_upload(tx, id, &own)?)).await;
            if let Err(error) = reset {
                tracing::error!(image = %id, %error, "failed upload: cannot reset the image to queued; the next start resets it");
            }
            let directory = self.directory.clone();
            self.blocking(move || directory.remove(&name)).await?;
        }
        received
    }

    async fn begin(&self, id: ImageId, name: &str) -> Result<ImageRecord, Error> {
        let name = name.to_owned();
        self.store
            .write(move |tx| {
                let begun = images::begin(tx, id, &name, time::now())?;
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
        format: Option<String>,
        name: &str,
        file: std::fs::File,
        mut data: ImageData,
    ) -> Result<(), Error> {
        let mut writer = Writer::start(self.threads.clone(), file);
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
            if let Some(left) = remaining.filter(|left| size > *left) {
                return Err(over_quota(size, left));
            }
            pace.advance(chunk.len(), Instant::now()).map_err(slow)?;
            let begun = Instant::now();
            writer.push(&chunk).await?;
            pace.extend(begun.elapsed());
        }
        let (file, mut received) = writer.end().await?;
        let directory = self.directory.clone();
        let (file, received) = self
            .blocking(move || {
                received.virtual_size =
                    format::inspect(&file, format.as_deref().unwrap_or_default(), received.size)?;
                received.format = format;
                directory.sync()?;
                Ok::<_, Error>((file, received))
            })
            .await??;
        let finished = self.finish(image, name, received).await;
        drop(file);
        finished
    }

    /// Checks the quota again, because concurrent uploads of the project may have finished.
    async fn finish(
        &self,
        image: &ImageRecord,
        name: &str,
        received: ReceivedData,
    ) -> Result<(), Error> {
        let (name, id, owner) = (name.to_owned(), image.id, image.owner.clone());
        let options = self.options.clone();
        self.store
            .write(move |tx| {
                let size = u64::try_from(received.size).unwrap_or_default();
                images::lock_owner(tx, &owner)?;
                if let Some(left) = remaining(tx, &owner, &options)?.filter(|left| size > *left) {
                    return Err(over_quota(size, left));
                }
                if images::finish(tx, id, &name, &received, time::now())? {
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

    /// The data of an image that the caller may download; `None` if it has none yet.
    pub(crate) async fn download_for(
        &self,
        context: &Context,
        id: ImageId,
    ) -> Result<(ImageRecord, Option<ImageData>), Error> {
        let (caller, project) = (self.requester(context), context.project_id.clone());
        let image = self.store.read(move |tx| allowed(tx, &caller, id, "download_image")).await?;
        if image.status == Status::Deactivated && !context.is_admin() {
            return Err(Error::Forbidden(
                "The requested image has been deactivated. Image data download is forbidden."
                    .into(),
            ));
        }
        let Some(path) = self.path(&image) else { return Ok((image, None)) };
        let pass = self.downloads.enter(&project)?;
        let file = self.blocking(move || std::fs::File::open(path)).await??;
        let client = (Pace::new(self.options.rate), pass);
        Ok((image, Some(data_of(self.threads.clone(), file, Some(client)))))
    }

    /// The path of an image's data, if it has any.
    pub fn path(&self, image: &ImageRecord) -> Option<std::path::PathBuf> {
        let name = image
            .data
            .as_deref()
            .filter(|_| matches!(image.status, Status::Active | Status::Deactivated))?;
        Some(self.directory.path(name))
    }

    /// Up to `most` bytes of an image from an offset, for a host; of any project.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Conflict`] for an image without data.
    pub async fn read(&self, id: ImageId, offset: u64, most: usize) -> Result<DataRange, Error> {
        let found = self.store.read(move |tx| Ok::<_, Error>(images::by_id(tx, id)?)).await?;
        let image = found.ok_or_else(|| Error::NotFound(id.to_string()))?;
        let path = self.path(&image).ok_or_else(|| {
            Error::Conflict(format!("Image {id} has no data: it is {}.", image.status.as_str()))
        })?;
        self.blocking(move || {
            let mut file = std::fs::File::open(path)?;
            let size = file.metadata()?.len();
            file.seek(SeekFrom::Start(offset))?;
            let mut bytes = Vec::new();
            file.take(most as u64).read_to_end(&mut bytes)?;
            Ok(DataRange { size, format: image.disk_format, hash: image.hash, bytes })
        })
        .await?
    }

    /// Recovers from a crash: requeues images in `saving` whose uploader is gone, and deletes files
    /// that no image names.
    pub(crate) async fn recover(&self) -> Result<(), Error> {
        let directory = self.directory.clone();
        let known = self.store.read(|tx| Ok::<_, Error>(images::files(tx)?)).await?;
        let stale = self
            .blocking(move || {
                let mut stale = Vec::new();
                for (id, name, status) in known {
                    if status == Status::Saving && directory.abandoned(&name)? {
                        stale.push((id, name));
                    }
                }
                Ok::<_, Error>(stale)
            })
            .await??;
        for (id, name) in stale {
            tracing::warn!(image = %id, "an upload was interrupted; the image is queued again");
            self.store
                .write(move |tx| Ok::<_, Error>(images::reset_upload(tx, id, &name)?))
                .await?;
        }
        self.sweep().await
    }

    /// Holds the locks from before the rows are read until the files are deleted, so that it never
    /// deletes a file that an uploader is about to use.
    async fn sweep(&self) -> Result<(), Error> {
        let directory = self.directory.clone();
        let known = self.files_in_use().await?;
        let seized = self
            .blocking(move || {
                let mut seized = Vec::new();
                for name in directory.names()?.into_iter().filter(|name| !known.contains(name)) {
                    seized.extend(directory.seize(&name)?.map(|lock| (name, lock)));
                }
                Ok::<_, Error>(seized)
            })
            .await??;
        let known = self.files_in_use().await?;
        let directory = self.directory.clone();
        self.blocking(move || {
            for (name, lock) in seized {
                if !known.contains(&name) {
                    directory.remove(&name);
                }
                drop(lock);
            }
        })
        .await
    }

    async fn files_in_use(&self) -> Result<HashSet<String>, Error> {
        let files = self.store.read(|tx| Ok::<_, Error>(images::files(tx)?)).await?;
        Ok(files.into_iter().map(|(_, name, _)| name).collect())
    }
}
