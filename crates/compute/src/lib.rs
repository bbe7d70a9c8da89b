//! Nova's functions: servers, flavors, key pairs, hosts and quotas behind the compute API.
//!
//! `api` handles HTTP only, `app` decides, and `db` contains the SQL. The crate must never access
//! another service's tables; it calls that service's ledger instead.

pub mod api;
pub mod app;
pub mod attention;
pub mod audit;
pub mod db;
pub mod error;
pub mod flows;
pub mod microversions;
pub mod options;
pub mod reconcile;
pub mod schemas;
pub mod state;

pub use api::{RULES, image_operations, operations, routes, service, service_up_to};
pub use app::link::Link;
pub use error::Error;
pub use options::{Options, Orphans};
pub use state::Compute;

/// The schema of the service, in order.
pub const MIGRATIONS: [&[kilonova_store::Migration]; 2] =
    [db::migrations_resources::RESOURCES, db::migrations_servers::SERVERS];

/// Examples of statements that are composed at run time, by name.
pub fn built_statements() -> Vec<(String, String)> {
    db::servers::listing::examples()
}

/// Every statement of the service. A test prepares each on both databases.
pub fn statements() -> Vec<&'static [(&'static str, &'static str)]> {
    vec![
        audit::ACROSS,
        &[db::counted::AUDIT],
        db::aggregates::STATEMENTS,
        db::census::STATEMENTS,
        db::clock::STATEMENTS,
        db::counted::STATEMENTS,
        db::documents::STATEMENTS,
        db::fleet::STATEMENTS,
        db::flavors::STATEMENTS,
        db::hosts::STATEMENTS,
        db::kept::STATEMENTS,
        db::keypairs::STATEMENTS,
        db::machines::STATEMENTS,
        db::moves::STATEMENTS,
        db::questions::STATEMENTS,
        db::queue::STATEMENTS,
        db::quotas::STATEMENTS,
        db::reserved::STATEMENTS,
        db::resting::STATEMENTS,
        db::server_groups::STATEMENTS,
        db::servers::deleted::STATEMENTS,
        db::servers::statements::STATEMENTS,
        db::slow::STATEMENTS,
        db::stuck::STATEMENTS,
        db::tenant_usage::STATEMENTS,
        db::usage::STATEMENTS,
    ]
}
