//! A client of the Image API v2 of an external Glance: images, their bytes, their deletion.
//!
//! ```text
//!   client     requests, retries and the meaning of answers
//!   image      an image as Glance describes it
//!   download   a download from an offset, with its hash
//!   upload     an upload to Glance, with its hash and a bound on idle time
//! ```
//!
//! The crate must never know servers, rows, or the rules for a server's choice of image. It never
//! holds a whole image in memory, and never logs a token.

mod client;
mod download;
mod error;
mod hash;
mod image;
mod upload;

pub use client::{Glance, GlanceOptions, Query};
pub use download::Download;
pub use error::Error;
pub use hash::{Digest, Expected};
pub use image::{Image, is_attribute};
pub use upload::Uploaded;
