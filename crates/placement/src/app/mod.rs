//! What the Placement API does, one file per resource, each a function over a transaction. What
//! HTTP looks like is `api`'s; what SQL looks like is `db`'s.

pub mod aggregates;
pub mod allocations;
pub mod candidates;
pub mod classes;
pub mod filters;
pub mod import;
pub mod inventories;
pub mod providers;
pub mod reshape;
pub mod traits;
