//! The operations of the Placement API: one file per resource or task, each operation a function over
//! a transaction. HTTP belongs to `api`, SQL to `db`.

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
