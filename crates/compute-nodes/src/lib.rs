//! The controller's side of the node API: documents, reports and image data of hosts.
//!
//! [`Link`] implements the API for agents in this process; [`api`] serves it over HTTP to all other
//! agents, separately from Nova's API. The crate must never serve a tenant.

pub mod api;
mod drain;
pub mod link;

pub use drain::{Drain, Phase};
pub use link::Link;
