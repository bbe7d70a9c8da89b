//! A client for the part of an external Cinder's Block Storage API v3 that a compute service needs.
//!
//! ```text
//!   client      requests, their address, their microversion, retries, pages
//!   volume      volumes: shown, created, deleted, detached
//!   attachment  attachments of volumes to servers: reserved, connected, completed, deleted
//!   snapshot    snapshots of volumes, and the limit on their number
//!   kind        volume types
//!   values      value formats that several modules share
//! ```
//!
//! Each function is one request, or one for each page of a list. Requests that change an attachment
//! always carry a service token: without one Cinder refuses to end an attachment that a server
//! uses. The client must never decide which volumes a server gets or the order of requests: its
//! caller decides both and journals the requests. The client never logs a token or the connection
//! data of an attachment.

mod attachment;
mod client;
mod error;
mod kind;
mod snapshot;
mod values;
mod volume;

pub use attachment::{Attachment, ConnectionInfo};
pub use client::{Call, Cinder};
pub use error::{Error, Refused};
pub use kind::VolumeType;
pub use snapshot::{NewSnapshot, Snapshot, SnapshotLimit};
pub use volume::{NewVolume, Volume, VolumeAttachment, VolumeSource};
