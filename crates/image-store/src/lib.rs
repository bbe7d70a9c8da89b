//! Storage of image data: one small interface, and a module for each kind of store.
//!
//! ```text
//!   image ─► ImageStore ─┬─► files   a directory of this machine, or one that controllers share
//!                        └─► s3      a bucket of an S3-compatible object store
//! ```
//!
//! Every upload writes an object with a unique name, so two uploads never write to the same object, and an
//! object does not change once it is readable. The interface streams: no store holds a whole object in
//! memory. This crate knows names, bytes and ages. It must never know an image's row, a user or a format.

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

/// The future of a call to a store.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A store of objects. A call to an object store returns within a bounded time; a call to a
/// directory takes as long as its file system does.
pub trait ImageStore: Debug + Send + Sync {
    /// Starts to write an object. It is not readable under its name before [`Upload::finish`].
    fn create<'a>(&'a self, name: &'a ObjectName) -> Answer<'a, Box<dyn Upload>>;

    /// Reads an object from the offset `from`: at most `most` bytes, or to its end if `most` is
    /// `None`.
    fn read<'a>(&'a self, name: &'a ObjectName, from: u64, most: Option<u64>)
    -> Answer<'a, Object>;

    /// The size of an object; `None` if it does not exist.
    fn size<'a>(&'a self, name: &'a ObjectName) -> Answer<'a, Option<u64>>;

    /// Deletes an object. Succeeds if the object does not exist.
    fn delete<'a>(&'a self, name: &'a ObjectName) -> Answer<'a, ()>;

    /// The next objects and unfinished uploads after a name, ordered by name; empty at the end.
    fn list<'a>(&'a self, after: Option<&'a ObjectName>) -> Answer<'a, Vec<Stored>>;

    /// Deletes an object or an unfinished upload that [`ImageStore::list`] found, unless a process
    /// of this machine is writing it.
    fn discard<'a>(&'a self, found: &'a Stored) -> Answer<'a, ()>;

    /// True if the store can prove that no process writes the object any more; false if that is
    /// unknown.
    fn is_abandoned<'a>(&'a self, name: &'a ObjectName) -> Answer<'a, bool>;
}

/// An object that is being written. If it is dropped without [`Upload::finish`] or
/// [`Upload::abort`], the sweep deletes the data.
pub trait Upload: Send {
    /// Adds bytes. Returns when the store is ready for more.
    fn write(&mut self, bytes: Bytes) -> Answer<'_, ()>;

    /// Makes the object durable and readable. For a store that can prove that uploads are abandoned, this
    /// one does not count as abandoned until the value is dropped.
    fn finish(&mut self) -> Answer<'_, ()>;

    /// Deletes the data, even after [`Upload::finish`].
    fn abort(&mut self) -> Answer<'_, ()>;
}

/// A readable object.
pub struct Object {
    /// Size of the whole object in bytes.
    pub size: u64,
    /// The requested bytes. The stream yields an error if it ends early.
    pub bytes: ByteStream,
}

/// An object or an unfinished upload in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its name.
    pub name: ObjectName,
    /// The store's id of an unfinished upload; `None` for an object.
    pub unfinished: Option<String>,
    /// The time from its last change, by the store's clock, to the present, by this machine's
    /// clock.
    pub age: Duration,
}
