//! The HTTP API.

mod nodes;
mod operators;

pub use nodes::node_routes;
pub use operators::{operations, operator_routes};
