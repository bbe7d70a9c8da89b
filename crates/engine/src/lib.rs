//! Which provider trees can take a request, and how: allocation candidates in the sense of the
//! Placement API, found lazily on an in-memory snapshot.
//!
//! Pure: no clock, no I/O, no async, no randomness of its own. It takes values and gives values, so
//! that it can be checked against a naive reference on random forests. It never decides whether a
//! claim succeeds: a snapshot may be stale, and the database checks again.

mod explain;
mod intern;
mod joint;
mod model;
mod query;
mod search;
mod snapshot;

pub use explain::{Explanation, Nearest, Step};
pub use model::{Candidate, Inventory, Provider, Tree};
pub use query::{Group, Query, QueryError};
pub use search::Search;
pub use snapshot::{NodeView, Snapshot, TreeView};
