//! The bytes: arriving, leaving, and what a crash left of them.
//!
//! ```text
//!            begin                finish
//!   queued ─────────► saving ─────────────► active
//!      ▲                 │ give up, or a crash
//!      └─────────────────┘
//! ```

use std::collections::HashSet;
use std::io::{Read as _, Seek as _, SeekFrom};

use axum::body::Body;
use http_body_util::BodyExt as _;
use kilonova_ids::ImageId;
use kilonova_store::Tx;
use kilonova_wire::Context;
use kilonova_wire::time::now_micros;
use tokio::time::Instant;

use super::allowed;
use crate::db::images::{self, Arrived};
use crate::files::{Directory, Pace, Pass, TooSlow, Writer, body_of, format};
use crate::{Error, ImageRecord, Images, Options, Status};

/// Some bytes of an image, and what is known of all of them.
#[derive(Debug, Clone)]
pub struct Piece {
    /// Bytes of the whole image.
    pub size: u64,
    /// `raw`, `qcow2`, …
    pub format: Option<String>,
    /// SHA-512 of the whole image.
    pub hash: Option<String>,
    /// Those from where it was asked for; none at the end.
    pub bytes: Vec<u8>,
}

/// Bytes that a project may still add; none when it may add any number.
fn room(tx: &mut Tx<'_>, owner: &str, options: &Options) -> Result<Option<u64>, Error> {
    let Some(quota) = options.storage else { return Ok(None) };
    let used = u64::try_from(images::bytes(tx, owner)?).unwrap_or_default();
    Ok(Some(quota.saturating_sub(used)))
}

fn over_quota(size: u64, room: u64) -> Error {
    Error::TooLarge(format!(
        "Image exceeds the storage quota: The size of the data {size} will exceed the limit. {room} \
         bytes remaining."
    ))
}

impl Images {
    /// Takes the bytes of an image for a caller. The work goes on by itself when the caller goes
    /// away, so that the image is always left either with its bytes or without.
    pub(crate) async fn upload_for(
        &self,
        context: &Context,
        id: ImageId,
        announced: Option<u64>,
        body: Body,
    ) -> Result<(), Error> {
        let (who, project) = (self.who(context), context.project_id.clone());
        let (image, room) = self
            .store
            .read(move |tx| {
                let image = allowed(tx, &who, id, "upload_image")?;
                let room = room(tx, &image.owner, &who.options)?;
                Ok::<_, Error>((image, room))
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
        if let Some((size, room)) = announced.zip(room).filter(|(size, room)| size > room) {
            return Err(over_quota(size, room));
        }
        let pass = self.uploads.enter(&project)?;
        self.spawn(id, None, body, pass).await
    }

    /// Takes the bytes of an image that are of this format, whatever it was said to be before: what a
    /// host sends of a snapshot. With its bytes the image gets the format. Only when the image waits
    /// for bytes and the host may send more, the body is asked for.
    ///
    /// # Errors
    /// [`Error::Conflict`] when the image has bytes or gets them already, [`Error::Busy`],
    /// [`Error::TooSlow`], [`Error::Unsupported`] when they are not of the format,
    /// [`Error::TooLarge`], [`Error::Gone`].
    pub async fn keep(
        &self,
        id: ImageId,
        format: &str,
        host: &str,
        body: impl FnOnce() -> Body,
    ) -> Result<(), Error> {
        let pass = self.snapshots.enter(host)?;
        self.spawn(id, Some(format.to_owned()), body(), pass).await
    }

    /// A file of this machine as a body.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be opened.
    pub async fn file(&self, path: std::path::PathBuf) -> Result<Body, Error> {
        let file = self.blocking(move || std::fs::File::open(path)).await??;
        Ok(body_of(self.threads.clone(), file, None))
    }

    async fn spawn(
        &self,
        id: ImageId,
        format: Option<String>,
        body: Body,
        pass: Pass,
    ) -> Result<(), Error> {
        let images = self.clone();
        tokio::spawn(async move {
            let taken = images.take(id, format, body).await;
            drop(pass);
            taken
        })
        .await
        .map_err(|e| Error::Io(std::io::Error::other(e)))?
    }

    async fn take(&self, id: ImageId, format: Option<String>, body: Body) -> Result<(), Error> {
        let name = Directory::name(id);
        let (directory, own) = (self.directory.clone(), name.clone());
        let file = self.blocking(move || directory.create(&own)).await??;
        let settled = match self.begin(id, &name).await {
            Ok(image) => {
                let format = format.or_else(|| image.disk_format.clone());
                self.fill(&image, format, &name, file, body).await
            }
            Err(error) => Err(error),
        };
        if settled.is_err() {
            let own = name.clone();
            let undone: Result<(), Error> =
                self.store.write(move |tx| Ok(images::give_up(tx, id, &own)?)).await;
            if let Err(error) = undone {
                tracing::error!(image = %id, %error, "the image stays in saving until the next start");
            }
            let directory = self.directory.clone();
            self.blocking(move || directory.remove(&name)).await?;
        }
        settled
    }

    async fn begin(&self, id: ImageId, name: &str) -> Result<ImageRecord, Error> {
        let name = name.to_owned();
        self.store
            .write(move |tx| {
                let begun = images::begin(tx, id, &name, now_micros())?;
                let image =
                    images::by_id(tx, id)?.ok_or_else(|| Error::NotFound(id.to_string()))?;
                if begun {
                    return Ok(image);
                }
                Err(Error::Conflict(format!(
                    "Image {id} is {}: data can be sent once, to an image that is queued.",
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
        mut body: Body,
    ) -> Result<(), Error> {
        let mut writer = Writer::start(self.threads.clone(), file);
        let mut pace = Pace::new(self.options.rate);
        let mut size = 0_u64;
        let (owner, options) = (image.owner.clone(), self.options.clone());
        let room = self.store.read(move |tx| room(tx, &owner, &options)).await?;
        loop {
            let slow = |slow: TooSlow| Error::TooSlow(format!("The upload is ended: {slow}."));
            let Ok(next) = tokio::time::timeout_at(pace.end(), body.frame()).await else {
                pace.moved(0, Instant::now()).map_err(slow)?;
                continue;
            };
            let Some(frame) = next else { break };
            let frame = frame.map_err(|e| Error::BrokenOff(e.to_string()))?;
            let Ok(chunk) = frame.into_data() else { continue };
            size += chunk.len() as u64;
            if size > self.options.size_cap {
                return Err(self.too_large());
            }
            if let Some(room) = room.filter(|room| size > *room) {
                return Err(over_quota(size, room));
            }
            pace.moved(chunk.len(), Instant::now()).map_err(slow)?;
            let begun = Instant::now();
            writer.push(&chunk).await?;
            pace.pardon(begun.elapsed());
        }
        let (file, mut arrived) = writer.end().await?;
        let directory = self.directory.clone();
        let (file, arrived) = self
            .blocking(move || {
                arrived.virtual_size =
                    format::inspect(&file, format.as_deref().unwrap_or_default(), arrived.size)?;
                arrived.format = format;
                directory.sync()?;
                Ok::<_, Error>((file, arrived))
            })
            .await??;
        let finished = self.finish(image, name, arrived).await;
        drop(file);
        finished
    }

    /// The bytes of other uploads of the project may have come to their end meanwhile.
    async fn finish(&self, image: &ImageRecord, name: &str, arrived: Arrived) -> Result<(), Error> {
        let (name, id, owner) = (name.to_owned(), image.id, image.owner.clone());
        let options = self.options.clone();
        self.store
            .write(move |tx| {
                let size = u64::try_from(arrived.size).unwrap_or_default();
                images::counted(tx, &owner)?;
                if let Some(room) = room(tx, &owner, &options)?.filter(|room| size > *room) {
                    return Err(over_quota(size, room));
                }
                if images::finish(tx, id, &name, &arrived, now_micros())? {
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

    /// The bytes of an image that the caller may read; `None` when it has none yet.
    pub(crate) async fn download_for(
        &self,
        context: &Context,
        id: ImageId,
    ) -> Result<(ImageRecord, Option<Body>), Error> {
        let (who, project) = (self.who(context), context.project_id.clone());
        let image = self.store.read(move |tx| allowed(tx, &who, id, "download_image")).await?;
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
        Ok((image, Some(body_of(self.threads.clone(), file, Some(client)))))
    }

    /// Where the bytes of an image are, if it has them.
    pub fn path(&self, image: &ImageRecord) -> Option<std::path::PathBuf> {
        let name = image
            .data
            .as_deref()
            .filter(|_| matches!(image.status, Status::Active | Status::Deactivated))?;
        Some(self.directory.path(name))
    }

    /// Up to `most` bytes of an image from a place on, whoever it belongs to: what a node fetches.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Conflict`] for one without bytes.
    pub async fn read(&self, id: ImageId, offset: u64, most: usize) -> Result<Piece, Error> {
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
            Ok(Piece { size, format: image.disk_format, hash: image.hash, bytes })
        })
        .await?
    }

    /// Clears away what a crash left: images in `saving` whose uploader is dead, and files that no
    /// image names.
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
            tracing::warn!(image = %id, "an upload was broken off; the image is queued again");
            self.store.write(move |tx| Ok::<_, Error>(images::give_up(tx, id, &name)?)).await?;
        }
        self.sweep().await
    }

    /// The locks are held from before the rows are read until the files are gone, so that none
    /// can be one that an uploader is about to use.
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
