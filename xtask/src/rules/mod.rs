//! The rules of docs/ARCHITECTURE.md that a program can check, one file each. A rule reads
//! [`crate::source::Sources`] and returns findings of the form `path:line: finding`.

pub mod dependencies;
pub mod headers;
pub mod layers;
pub mod links;
pub mod microversions;
pub mod prose;
