//! Compute's interface to the image service, for requests, flows and hosts.
//!
//! ```text
//!   look_up   before a transaction: the images that a request names, as its caller sees them
//!   reserve   a snapshot's image, before its bytes exist
//!   discard   an image that failed or is no longer needed
//!   read      bytes for a host
//!   receive   bytes from a host
//!   of_volumes  an image without data, whose properties name snapshots of volumes
//!   proxy     Nova's image proxy API
//! ```
//!
//! Our own image service keeps its rows in the same database, so its part is done in the caller's
//! transaction. Calls to the Glance of a cloud precede or follow it, and rows record them
//! ([`glance`]). No other module of compute may use the rows of images.

pub mod glance;
mod of_volumes;
mod proxy;
mod snapshot;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use kilonova_compute_db::glance_images::{self, GlanceState};
use kilonova_compute_db::servers::Server;
use kilonova_ids::{HostName, ImageId};
use kilonova_image::{DataRange, ImageData, ImageRecord, Images, Status};
use kilonova_store::{Store, Tx};
use kilonova_wire::Context;

use glance::CloudGlance;
pub(crate) use of_volumes::{VolumesImage, adopt_of_volumes, expect_of_volumes};
pub use snapshot::Snapshot;
pub(crate) use snapshot::{completed, discard, reserve};

use crate::bitstreams::ImageBitstreams;
use crate::{Compute, Error};

/// The image service.
#[derive(Clone, Default)]
pub enum ImageService {
    /// Another process serves images from the same database; this process does not have their bytes.
    #[default]
    Elsewhere,
    /// Our own, in this process.
    Own(Images),
    /// The Glance of the cloud.
    Glance(Arc<CloudGlance>),
}

/// The project that owns the image of a caller's snapshot.
fn owner<'a>(context: &'a Context, server: &'a Server) -> &'a str {
    if context.project_id.is_empty() { &server.project_id } else { &context.project_id }
}

/// The images that a request names, as the service shows them to the caller.
#[derive(Debug, Clone, Default)]
pub enum SeenImages {
    /// Our own service is queried in the transaction that uses the image.
    #[default]
    InRows,
    /// Glance was queried before the transaction.
    Read(BTreeMap<ImageId, ImageRecord>),
}

/// The image of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreparedImage {
    /// Our own service creates it in the transaction of the operation.
    InTransaction,
    /// Glance has created it.
    Created(ImageId),
}

impl SeenImages {
    /// An image, if the caller may use it.
    ///
    /// # Errors
    /// Store errors only.
    pub fn visible(
        &self,
        tx: &mut Tx<'_>,
        compute: &Compute,
        context: &Context,
        id: ImageId,
    ) -> Result<Option<ImageRecord>, Error> {
        match self {
            Self::InRows => Ok(kilonova_image::visible(tx, &compute.image_policy, context, id)?),
            Self::Read(images) => Ok(images.get(&id).cloned()),
        }
    }

    /// An image that a server of the caller uses already, if it still exists.
    ///
    /// # Errors
    /// Store errors only.
    pub fn used(&self, tx: &mut Tx<'_>, id: ImageId) -> Result<Option<ImageRecord>, Error> {
        match self {
            Self::InRows => Ok(kilonova_image::find(tx, id)?),
            Self::Read(images) => Ok(images.get(&id).cloned()),
        }
    }
}

impl ImageService {
    /// Looks up the images that a request names, and the kernels and RAM disks that they name.
    ///
    /// # Errors
    /// 503 if the service does not answer.
    pub async fn look_up(
        &self,
        context: &Context,
        images: impl IntoIterator<Item = ImageId>,
    ) -> Result<SeenImages, Error> {
        match self {
            Self::Elsewhere | Self::Own(_) => Ok(SeenImages::InRows),
            Self::Glance(glance) => Ok(SeenImages::Read(glance.look_up(context, images).await?)),
        }
    }

    /// Prepares the image of a snapshot, before the transaction that begins the operation.
    ///
    /// # Errors
    /// The service's refusal; 503 if it does not answer.
    pub async fn prepare(
        &self,
        store: &Store,
        context: &Context,
        server: &Server,
        request: &Snapshot,
    ) -> Result<PreparedImage, Error> {
        match self {
            Self::Elsewhere | Self::Own(_) => Ok(PreparedImage::InTransaction),
            Self::Glance(glance) => {
                let image = glance.create(store, context, server, request).await?;
                Ok(PreparedImage::Created(image))
            }
        }
    }

    /// Discards an image whose operation did not begin.
    pub async fn withdraw(&self, store: &Store, prepared: PreparedImage) {
        if let (Self::Glance(glance), PreparedImage::Created(image)) = (self, prepared) {
            glance.discard_after(store, image, SignedDuration::ZERO).await;
        }
    }

    /// Announces the read of an image in the transaction, so that it shares a round trip with
    /// another statement.
    ///
    /// # Errors
    /// Store errors only.
    pub fn expect(&self, tx: &mut Tx<'_>, image: ImageId) -> Result<(), Error> {
        match self {
            Self::Elsewhere | Self::Own(_) => Ok(kilonova_image::expect(tx, image)?),
            Self::Glance(_) => Ok(()),
        }
    }

    /// The source of bitstreams in our own image service; `None` with Glance.
    pub fn bitstreams(&self) -> Option<ImageBitstreams> {
        match self {
            Self::Elsewhere | Self::Own(_) => Some(ImageBitstreams),
            Self::Glance(_) => None,
        }
    }

    /// Our own service, if it runs in this process.
    pub fn own(&self) -> Option<&Images> {
        match self {
            Self::Elsewhere | Self::Glance(_) => None,
            Self::Own(images) => Some(images),
        }
    }

    /// The Glance of the cloud, if it is the image service.
    pub fn glance(&self) -> Option<&Arc<CloudGlance>> {
        match self {
            Self::Elsewhere | Self::Own(_) => None,
            Self::Glance(glance) => Some(glance),
        }
    }

    /// Reads up to `most` bytes of an image, starting at an offset. The caller has checked that the host needs it.
    ///
    /// # Errors
    /// [`Transfer`].
    pub async fn read(
        &self,
        host: &HostName,
        image: ImageId,
        offset: u64,
        most: usize,
    ) -> Result<DataRange, Transfer> {
        if let Self::Glance(glance) = self {
            return glance.read(host, image, offset, most).await;
        }
        let images = self.own().ok_or_else(Transfer::no_service)?;
        images.read(image, offset, most).await.map_err(|error| {
            use kilonova_image::Error;
            match error {
                Error::NotFound(_) | Error::Conflict(_) => Transfer::Refused(error.to_string()),
                other => Transfer::Unavailable(other.to_string()),
            }
        })
    }

    /// Receives the bytes of a snapshot from a host. The caller has checked that a document of the host requests them.
    /// `bytes` is called only if a transfer slot is free.
    ///
    /// # Errors
    /// [`Transfer`].
    pub async fn receive<D: Into<ImageData>>(
        &self,
        store: &Store,
        image: ImageId,
        format: &str,
        host: &str,
        bytes: impl FnOnce() -> D,
    ) -> Result<(), Transfer> {
        if let Self::Glance(glance) = self {
            return glance.receive(store, image, format, bytes).await;
        }
        let images = self.own().ok_or_else(Transfer::no_service)?;
        images.receive_snapshot(image, format, host, bytes).await.map_err(|error| {
            use kilonova_image::Error;
            match error {
                Error::Conflict(_)
                | Error::Interrupted(_)
                | Error::TooSlow(_)
                | Error::Busy(_)
                | Error::Data(_)
                | Error::Gone(_)
                | Error::Threads(_)
                | Error::Store(_) => Transfer::Unavailable(error.to_string()),
                other => Transfer::Refused(other.to_string()),
            }
        })
    }

    /// A file on this machine, as image data.
    ///
    /// # Errors
    /// [`Transfer::Refused`] if it cannot be opened.
    pub async fn file(&self, path: std::path::PathBuf) -> Result<ImageData, Transfer> {
        if let Self::Glance(glance) = self {
            return glance.file(path).await;
        }
        let images = self.own().ok_or_else(Transfer::no_service)?;
        let shown = path.display().to_string();
        images.file(path).await.map_err(|error| Transfer::Refused(format!("{shown}: {error}")))
    }
}

/// The state of a snapshot's image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotState {
    /// It waits for its bytes.
    Expected,
    /// It has its bytes.
    Complete,
}

impl ImageService {
    /// The image that a snapshot creates; `None` if it was deleted.
    ///
    /// # Errors
    /// Store errors only.
    pub fn snapshot(
        &self,
        tx: &mut Tx<'_>,
        image: ImageId,
    ) -> Result<Option<SnapshotState>, Error> {
        if let Self::Glance(_) = self {
            let found = glance_images::find(tx, image)?;
            return Ok(found.and_then(|image| match image.state {
                GlanceState::Expected => Some(SnapshotState::Expected),
                GlanceState::Complete => Some(SnapshotState::Complete),
                GlanceState::Creating | GlanceState::Rotating { .. } | GlanceState::Unwanted => {
                    None
                }
            }));
        }
        let found = kilonova_image::find(tx, image)?;
        Ok(found.map(|image| match image.status {
            Status::Active => SnapshotState::Complete,
            Status::Queued | Status::Saving | Status::Deactivated => SnapshotState::Expected,
        }))
    }
}

/// Why bytes were not transferred, for the agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Transfer {
    /// Another attempt would end in the same way.
    #[error("{0}")]
    Refused(String),
    /// Another attempt may succeed.
    #[error("{0}")]
    Unavailable(String),
}

impl Transfer {
    fn no_service() -> Self {
        Self::Refused("this controller has no image service".into())
    }
}
