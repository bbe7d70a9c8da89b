//! What the image service does, apart from HTTP, SQL and files.

mod change;
mod data;
mod listing;
pub(crate) mod patch;
mod rules;

use kilonova_ids::ImageId;
use kilonova_store::Tx;
use kilonova_wire::Context;

use crate::db::images;
use crate::{Error, ImageRecord, Images};

pub use data::Piece;
pub(crate) use listing::Filters;
pub(crate) use rules::apply;

impl Images {
    /// Runs work that waits for the disk, and for nothing else, on the threads for that.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        Ok(self.threads.run(work).await?)
    }
}

pub(crate) fn insert(tx: &mut Tx<'_>, image: &ImageRecord) -> Result<(), Error> {
    images::insert(tx, image).map_err(|error| match error {
        kilonova_store::Error::Unique(_) => {
            Error::Conflict(format!("Image ID {} already exists!", image.id))
        }
        other => Error::Store(other),
    })
}

/// The image if the caller may know of it.
fn seen(tx: &mut Tx<'_>, context: &Context, id: ImageId) -> Result<ImageRecord, Error> {
    images::by_id(tx, id)?
        .filter(|image| image.visible_to(context))
        .ok_or_else(|| Error::NotFound(id.to_string()))
}

/// The image if the caller may change it.
fn owned(tx: &mut Tx<'_>, context: &Context, id: ImageId) -> Result<ImageRecord, Error> {
    let image = seen(tx, context, id)?;
    if context.may_see(&image.owner) {
        return Ok(image);
    }
    Err(Error::Forbidden(format!("You are not permitted to change image {id}.")))
}
