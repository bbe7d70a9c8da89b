//! Neutron v2, the part that clients need when there are no networks: lists that are empty,
//! things that are not found, quotas without limits.
//!
//! Kilonova does not manage networks. This service says so, in the words that a client prints,
//! instead of leaving a hole in the catalog that breaks `server create` and `quota show`. It keeps
//! nothing and must never pretend to have made something.

mod api;

pub use api::{routes, service};
