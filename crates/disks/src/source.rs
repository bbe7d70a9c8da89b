//! The source of image bytes.

use std::pin::Pin;

use kilonova_ids::ImageId;
use kilonova_node_api::Chunk;

/// A chunk, or the reason why it could not be read, for the operator.
pub type Reading<'a> = Pin<Box<dyn Future<Output = Result<Chunk, String>> + Send + 'a>>;

/// A reader of images. It retries internally, so an error is final.
pub trait Images: Send + Sync + 'static {
    /// Reads bytes of an image from an offset; empty at the end. The bytes of an image never
    /// change.
    fn read(&self, image: ImageId, offset: u64) -> Reading<'_>;
}
