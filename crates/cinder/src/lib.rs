//! A client of the Block Storage API v3 of an external Cinder, the part that a compute service needs.
//!
//! ```text
//!   client      requests, their address, their microversion, retries, pages
//!   volume      volumes: shown, created, deleted, detached
//!   attachment  attachments of volumes to servers: reserved, connected, completed, deleted
//!   snapshot    snapshots of volumes, and the limit on their number
//!   kind        volume types
//!   values      forms of values that several of them have
//! ```
//!
//! Each function is one request, or one for each page of a list. Requests that change an attachment always
//! carry a service token: without one Cinder refuses to end an attachment that a server uses. The client
//! must never decide what a server gets, nor in which order requests are sent: its caller does, and keeps
//! a journal of them. It never logs a token or what an attachment says about a connection.

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
