//! The source of image bytes and vendor data: the controller.

use std::pin::Pin;

use kilonova_ids::{ImageId, ServerId};
use kilonova_node_api::Chunk;
use serde_json::{Map, Value};

/// A chunk, or the reason why it could not be read, for the operator.
pub type Reading<'a> = Pin<Box<dyn Future<Output = Result<Chunk, String>> + Send + 'a>>;

/// The answers of the operator's vendor data services by name, or the reason why there are none.
pub type Answers<'a> =
    Pin<Box<dyn Future<Output = Result<Map<String, Value>, String>> + Send + 'a>>;

/// A reader of images and vendor data. It retries internally, so an error is final.
pub trait Images: Send + Sync + 'static {
    /// Reads bytes of an image from an offset; empty at the end. The bytes of an image never
    /// change.
    fn read(&self, image: ImageId, offset: u64) -> Reading<'_>;

    /// Asks the operator's vendor data services about a server, for its config drive.
    fn vendordata(&self, server: ServerId) -> Answers<'_>;
}
