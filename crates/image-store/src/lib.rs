//! Where the bytes of images are: one small interface, and a module for each kind of store.
//!
//! ```text
//!   image ─► ImageStore ─┬─► files   a directory of this machine, or one that controllers share
//!                        └─► s3      a bucket of an S3-compatible object store
//! ```
//!
//! Every upload writes an object with a name of its own, so no two uploads meet, and an object never
//! changes once it is readable. The interface streams: no store holds an object in memory. This crate
//! knows names, bytes and ages. It must never know a row of an image, a user, or a format.

mod data;
mod error;
mod files;
mod name;
mod s3;

use std::fmt::Debug;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;

pub use data::{ByteStream, file_bytes};
pub use error::Error;
pub use files::Files;
pub use name::ObjectName;
pub use s3::{LEAST_PART, S3, S3Options, Secret};

/// The result of a store's call.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A store of objects. Every call ends within a bounded time.
pub trait ImageStore: Debug + Send + Sync {
    /// Begins to write an object. Nothing is readable under the name before [`Upload::finish`].
    /// `announced` is the number of bytes, if it is known.
    fn create<'a>(
        &'a self,
        name: &'a ObjectName,
        announced: Option<u64>,
    ) -> Answer<'a, Box<dyn Upload>>;

    /// The bytes of an object from an offset: at most `most`, and fewer only at the object's end.
    fn read<'a>(&'a self, name: &'a ObjectName, from: u64, most: Option<u64>)
    -> Answer<'a, Object>;

    /// The size of an object; `None` if there is none.
    fn size<'a>(&'a self, name: &'a ObjectName) -> Answer<'a, Option<u64>>;

    /// Deletes an object; success if there is none.
    fn delete<'a>(&'a self, name: &'a ObjectName) -> Answer<'a, ()>;

    /// The next objects and unfinished uploads after a name, ordered by name; empty at the end.
    fn list<'a>(&'a self, after: Option<&'a ObjectName>) -> Answer<'a, Vec<Stored>>;

    /// Deletes what [`ImageStore::list`] found, unless a process of this machine is writing it.
    fn discard<'a>(&'a self, found: &'a Stored) -> Answer<'a, ()>;

    /// True only with proof that nobody writes the object any more. `false` proves nothing.
    fn is_abandoned<'a>(&'a self, name: &'a ObjectName) -> Answer<'a, bool>;
}

/// An object that is being written. Dropped without [`Upload::finish`] or [`Upload::abort`], it
/// remains for the sweep.
pub trait Upload: Send {
    /// Adds bytes. Returns when the store is ready for more.
    fn write(&mut self, bytes: Bytes) -> Answer<'_, ()>;

    /// Makes the object durable and readable. A store that can prove that an upload is abandoned holds
    /// the opposite proof until the value is dropped.
    fn finish(&mut self) -> Answer<'_, ()>;

    /// Deletes what was written, also after [`Upload::finish`].
    fn abort(&mut self) -> Answer<'_, ()>;
}

/// A readable object.
pub struct Object {
    /// Bytes of the whole object.
    pub size: u64,
    /// The requested bytes. An error ends them early; they are never silently short.
    pub bytes: ByteStream,
}

/// An object or an unfinished upload in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its name.
    pub name: ObjectName,
    /// `None` for an object, else the store's word for the unfinished upload.
    pub unfinished: Option<String>,
    /// The time since its last change, by the clocks of this machine and the store.
    pub age: Duration,
}
