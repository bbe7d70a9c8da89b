//! The control plane as a node sees it. In one process it is a call; between machines, HTTP.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use kilonova_ids::ImageId;

use crate::{Batch, Carried, Chunk, DiskFormat, Observation, Registration, Reply, Session};

/// A boxed answer.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send + 'a>>;

/// Why the control plane did not do as asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Another process registered for this host later; this one must stop acting.
    Fenced,
    /// The registration itself is wrong; the text is for the node's operator.
    Rejected(String),
    /// The control plane cannot answer now; try again.
    Unavailable(String),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fenced => f.write_str("another process has registered for this host"),
            Self::Rejected(why) | Self::Unavailable(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Refusal {}

/// What a node asks of the control plane. Nodes dial out only.
pub trait ControlPlane: Send + Sync + 'static {
    /// Says what the host is and has. The answer's epoch goes with every later call.
    fn register(&self, registration: Registration) -> Answer<'_, Session>;

    /// Waits until a document newer than `since` exists, or some seconds, and returns what there
    /// is. `since = 0` returns everything that concerns the host: the recovery path.
    fn desired<'a>(&'a self, host: &'a str, epoch: i64, since: i64) -> Answer<'a, Batch>;

    /// Reports what was seen. Once answered, the control plane has it durably.
    fn observed<'a>(
        &'a self,
        host: &'a str,
        epoch: i64,
        observations: Vec<Observation>,
    ) -> Answer<'a, ()>;

    /// Reports what came of orders. Once answered, the control plane has it durably.
    fn carried_out<'a>(
        &'a self,
        host: &'a str,
        epoch: i64,
        carried: Vec<Carried>,
    ) -> Answer<'a, ()>;

    /// Bytes of an image from a place on, as many as one answer carries. The bytes of an image never
    /// change, so a file can be fetched piece by piece.
    fn image<'a>(
        &'a self,
        host: &'a str,
        epoch: i64,
        image: ImageId,
        offset: u64,
    ) -> Answer<'a, Chunk>;

    /// Takes the bytes of an image that a document's snapshot names, from a file of this format.
    /// Sending again what has been taken does no harm.
    fn keep_image<'a>(
        &'a self,
        host: &'a str,
        epoch: i64,
        image: ImageId,
        format: DiskFormat,
        file: PathBuf,
    ) -> Answer<'a, ()>;

    /// Answers questions. Nobody may be waiting any more.
    fn replied<'a>(&'a self, host: &'a str, epoch: i64, replies: Vec<Reply>) -> Answer<'a, ()>;
}
