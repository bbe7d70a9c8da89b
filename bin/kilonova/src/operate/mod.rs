//! Operators' commands for a running cloud: explain a server, drain a host, count what fits, rebalance.
//!
//! They use the HTTP API with the operator's credentials, so policy applies; nothing here may open a
//! database.

pub mod capacity;
pub mod drain;
pub mod explain;
pub mod find;
pub mod progress;
pub mod rebalance;
pub mod text;
