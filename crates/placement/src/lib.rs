//! The Placement API over the engine and the store: resource providers, inventories, allocations
//! and candidates.
//!
//! This crate owns the resource ledger. It must never depend on servers or devices: compute and
//! accelerator call [`ledger`] within their transactions, and other clients use HTTP.

pub mod app;
pub mod codes;
pub mod db;
pub mod ledger;
pub mod names;

mod api;
mod error;
mod world;

pub use api::{Placement, RULES, policy, routes, service};
pub use db::audit::AUDIT;
pub use db::schema::MIGRATIONS;
pub use db::statements;
pub use error::Error;
pub use kilonova_engine::Inventory;
pub use world::{Providers, World};
