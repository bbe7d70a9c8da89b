//! Finds allocation candidates, as the Placement API defines them, lazily on an in-memory snapshot
//! of all provider trees.
//!
//! The crate is pure: no clock, no I/O, no async, and no randomness except the seed of a query.
//! This allows a comparison with a naive reference on random forests. It never decides whether a
//! claim succeeds: a snapshot may be stale, and the database checks again.

mod explain;
mod intern;
mod joint;
mod model;
mod query;
mod search;
mod shortage;
mod snapshot;

pub use explain::{Explanation, Nearest, Step};
pub use model::{Candidate, Inventory, Provider, Tree};
pub use query::{Alike, Group, Query, QueryError};
pub use search::Search;
pub use snapshot::{CELL_CLASSES, CELL_TRAIT, NodeView, Snapshot, TreeView, is_of_cell};
