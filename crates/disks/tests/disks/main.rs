//! Disks as files, made by the real programs. A host without one of them skips what needs it, and
//! says so.

mod cache;
mod host;
mod made;
mod peer;
mod refused;
