//! Downloads: the data of an image for a user, and ranges of it for hosts.

use std::future::poll_fn;

use kilonova_ids::ImageId;
use kilonova_wire::Context;

use super::allowed;
use crate::db::images;
use crate::transfer::{ImageData, Pace, deliver};
use crate::{Error, ImageRecord, Images, Location, Status};

/// A range of an image's data, with facts about the whole image.
#[derive(Debug, Clone)]
pub struct DataRange {
    /// The size of the whole image in bytes.
    pub size: u64,
    /// `raw`, `qcow2`, …
    pub format: Option<String>,
    /// SHA-512 of the whole image.
    pub hash: Option<String>,
    /// The bytes from the requested offset; empty at the end.
    pub bytes: Vec<u8>,
}

fn check_size(image: &ImageRecord, location: &Location, size: u64) -> Result<(), Error> {
    if image.size.is_none_or(|own| u64::try_from(own) == Ok(size)) {
        return Ok(());
    }
    Err(Error::Damaged { image: image.id, object: location.name.to_string() })
}

impl Images {
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
        let Some(location) = image.complete() else { return Ok((image, None)) };
        let pass = self.downloads.enter(&project)?;
        let object = self.stores.of(location)?.read(&location.name, 0, None).await?;
        check_size(&image, location, object.size)?;
        let (pool, pace) = (self.threads.clone(), Pace::new(self.options.rate));
        let data = deliver(pool, object.bytes, image.hash.clone(), pace, pass);
        Ok((image, Some(data)))
    }

    /// Up to `most` bytes of any project's image from an offset, for a host.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Conflict`] for an image without data; [`Error::Data`] if the store
    /// failed.
    pub async fn read(&self, id: ImageId, offset: u64, most: usize) -> Result<DataRange, Error> {
        let found = self.store.read(move |tx| Ok::<_, Error>(images::by_id(tx, id)?)).await?;
        let image = found.ok_or_else(|| Error::NotFound(id.to_string()))?;
        let location = image.complete().ok_or_else(|| {
            Error::Conflict(format!("Image {id} has no data: it is {}.", image.status.as_str()))
        })?;
        let store = self.stores.of(location)?;
        let mut object = store.read(&location.name, offset, Some(most as u64)).await?;
        check_size(&image, location, object.size)?;
        let mut bytes = Vec::new();
        while let Some(chunk) = poll_fn(|context| object.bytes.as_mut().poll_next(context)).await {
            bytes.extend_from_slice(&chunk?);
        }
        Ok(DataRange { size: object.size, format: image.disk_format, hash: image.hash, bytes })
    }
}
