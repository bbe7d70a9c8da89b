//! Bitstreams for the device ledger: images and their properties.

use kilonova_accelerator::{Bitstream, Bitstreams};
use kilonova_ids::ImageId;
use kilonova_image::{ImageRecord, Status};
use kilonova_store::{Error, Tx};

/// The property that names the function that an image loads.
const FUNCTION: &str = "accel:function_id";

/// The images of this process's image service.
#[derive(Debug, Clone, Copy, Default)]
pub struct ImageBitstreams;

impl Bitstreams for ImageBitstreams {
    fn by_id(&self, tx: &mut Tx<'_>, image: ImageId) -> Result<Option<Bitstream>, Error> {
        Ok(kilonova_image::find(tx, image).map_err(stored)?.map(bitstream))
    }

    fn by_function(&self, tx: &mut Tx<'_>, function: &str) -> Result<Vec<Bitstream>, Error> {
        let found = kilonova_image::public_with(tx, FUNCTION, function).map_err(stored)?;
        Ok(found.into_iter().map(bitstream).collect())
    }
}

fn bitstream(image: ImageRecord) -> Bitstream {
    Bitstream {
        image: image.id,
        ready: image.status == Status::Active,
        function: image.properties.get(FUNCTION).cloned(),
    }
}

fn stored(error: kilonova_image::Error) -> Error {
    match error {
        kilonova_image::Error::Store(error) => error,
        other => Error::Shape(other.to_string()),
    }
}
