//! Where the bytes of images come from.

use std::pin::Pin;

use kilonova_ids::ImageId;
use kilonova_node_api::Chunk;

/// Some bytes, or why there are none; the reason is for people.
pub type Reading<'a> = Pin<Box<dyn Future<Output = Result<Chunk, String>> + Send + 'a>>;

/// Something that reads images. It is patient by itself: an error is final.
pub trait Images: Send + Sync + 'static {
    /// Bytes of an image from a place on; none at the end. The bytes of an image never change.
    fn read(&self, image: ImageId, offset: u64) -> Reading<'_>;
}
