//! Our answers against upstream's OpenAPI documents.
//!
//! Used by tests alone: nothing that is served may depend on it. The documents come with the crate
//! `openstack_types` and say, for each operation and microversion, what a request may be and what an
//! answer is.

pub mod coverage;
pub mod document;
pub mod wrong;
mod yaml;

pub use coverage::Coverage;
pub use document::{Document, Operation, Side};
