//! The data that a guest gets about itself: the one source of the config drive and the metadata service.
//!
//! A [`Document`] contains all of it; [`Document::lookup`] answers the paths of the metadata
//! service as Nova does, and [`Document::drive`] lists the files of the config drive. The crate is
//! pure: it reads no clock, no file and no database, and makes no random bytes. It must never know
//! the requester.

mod disks;
mod document;
mod ec2;
mod network;
mod openstack;
mod path;

pub use disks::TaggedDisk;
pub use document::{BlockDevices, Document, Images, Vendordata, VolumeDisk, hostname};
pub use path::{Answer, ContentType, MAX_PASSWORD, lookup_versions, texts};
