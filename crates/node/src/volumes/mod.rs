//! The interface between the agent and the volumes of its host.
//!
//! An implementation connects the volumes that a document names and disconnects those that no guest
//! uses any more. It keeps a record of each attachment from before it is connected until after it
//! is disconnected, so that a crash leaves nothing behind. It must never decide which volumes a
//! guest has.

mod records;

use std::collections::BTreeSet;
use std::pin::Pin;

use kilonova_ids::{AttachmentId, ServerId, VolumeId};
use kilonova_node_api::{Connector, Volume, VolumeSource};

pub use records::{VolumeRecord, VolumeRecords};

/// The future of a step. The error is for the operator and contains no secret.
pub type VolumeFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// The future of [`Volumes::disconnect_others`].
pub type DisconnectFuture<'a> = Pin<Box<dyn Future<Output = Vec<StuckVolume>> + Send + 'a>>;

/// An attachment that could not be disconnected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckVolume {
    /// The attachment's volume.
    pub volume: Volume,
    /// The reason.
    pub reason: String,
}

/// The volumes of a host. Every call is idempotent and may be dropped at any point.
pub trait Volumes: Send + Sync + 'static {
    /// The host's connector for Cinder; `None` if it cannot attach volumes.
    fn connector(&self) -> Option<Connector>;

    /// Connects a volume for a guest, unless it is connected, and makes its current size visible.
    fn connect<'a>(
        &'a self,
        server: ServerId,
        volume: &'a Volume,
    ) -> VolumeFuture<'a, VolumeSource>;

    /// Disconnects all attachments of a server except these. Returns the attachments that could not
    /// be disconnected.
    fn disconnect_others<'a>(
        &'a self,
        server: ServerId,
        keep: &'a BTreeSet<AttachmentId>,
    ) -> DisconnectFuture<'a>;

    /// The attachments of a server that may be connected, with their volumes.
    fn attachments(&self, server: ServerId) -> Vec<(AttachmentId, VolumeId)>;

    /// The servers with attachments that may be connected.
    fn servers(&self) -> BTreeSet<ServerId>;
}
