//! The HTTP API.

mod nodes;
mod operators;

pub use nodes::{Presented, node_routes};
pub use operators::{operations, operator_routes};
