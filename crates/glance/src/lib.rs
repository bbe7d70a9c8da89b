//! A client of the Image API v2 of an external Glance: images, their bytes, their deletion.
//!
//! ```text
//!   client     requests, retries and the meaning of answers
//!   image      an image as Glance describes it
//!   download   bytes from an offset, with their hash
//!   upload     bytes on their way to Glance, with their hash and a bound on idle time
//! ```
//!
//! It knows no server, no row and no rule about which image a server may use. It never holds the bytes of a
//! whole image, and never logs a token.

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
