//! Nova's work: servers, flavors, keypairs, hosts and quotas behind the compute API.
//!
//! `api` speaks HTTP and nothing else, `app` decides, `db` holds the SQL. The crate must never
//! reach into another service's tables; it calls that service's ledger instead.

pub mod api;
pub mod app;
pub mod db;
pub mod error;
pub mod state;

pub use error::Error;
pub use state::Compute;
