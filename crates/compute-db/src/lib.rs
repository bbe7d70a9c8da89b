//! The tables of the compute service: its rows as types, the statements on them as named constants, and
//! the functions that run them within a caller's transaction.
//!
//! The crate must never decide anything, and never access another service's tables; it calls that
//! service's ledger instead. [`audit`] is the exception: its rules span the services.

pub mod aggregates;
pub mod audit;
pub mod cells;
pub mod census;
pub mod clock;
pub mod consoles;
pub mod counted;
pub mod demand;
pub mod documents;
pub mod drain_guests;
pub mod drains;
pub mod error;
pub mod external_ports;
pub mod fits;
pub mod flavors;
pub mod fleet;
pub mod glance_images;
pub mod guest_metadata;
pub mod hosts;
pub mod kept;
pub mod keypairs;
pub mod left_guests;
pub mod machines;
pub mod migrations_actions;
pub mod migrations_aggregates;
pub mod migrations_deleted;
pub mod migrations_groups;
pub mod migrations_moves;
pub mod migrations_resources;
pub mod migrations_servers;
pub mod moves;
pub mod port_claims;
pub mod questions;
pub mod queue;
pub mod quotas;
pub mod rebalance;
pub mod reserved;
pub mod resting;
pub mod samples;
pub mod server_groups;
pub mod servers;
pub mod silence;
pub mod slow;
pub mod stuck;
pub mod tenant_usage;
pub mod unknown_guests;
pub mod usage;
pub mod volume_snapshots;
pub mod volumes;

pub use error::Error;

/// The schema of the service, in order.
pub const MIGRATIONS: [&[kilonova_store::Migration]; 2] =
    [migrations_resources::RESOURCES, migrations_servers::SERVERS];

/// Examples of statements that are composed at run time, by name.
pub fn built_statements() -> Vec<(String, String)> {
    servers::listing::examples()
}

/// Every statement of the service. A test prepares each on both databases.
pub fn statements() -> Vec<&'static [(&'static str, &'static str)]> {
    vec![
        audit::ACROSS,
        &[counted::AUDIT],
        aggregates::STATEMENTS,
        cells::STATEMENTS,
        samples::STATEMENTS,
        census::STATEMENTS,
        clock::STATEMENTS,
        consoles::STATEMENTS,
        counted::STATEMENTS,
        demand::STATEMENTS,
        documents::STATEMENTS,
        drain_guests::STATEMENTS,
        drains::STATEMENTS,
        external_ports::STATEMENTS,
        fits::AUDIT,
        &[fits::CELLS_AUDIT],
        fits::STATEMENTS,
        fleet::STATEMENTS,
        flavors::STATEMENTS,
        glance_images::STATEMENTS,
        guest_metadata::STATEMENTS,
        hosts::STATEMENTS,
        kept::STATEMENTS,
        keypairs::STATEMENTS,
        left_guests::STATEMENTS,
        machines::STATEMENTS,
        moves::STATEMENTS,
        port_claims::AUDIT,
        port_claims::STATEMENTS,
        questions::STATEMENTS,
        queue::STATEMENTS,
        quotas::STATEMENTS,
        rebalance::STATEMENTS,
        reserved::STATEMENTS,
        resting::STATEMENTS,
        server_groups::STATEMENTS,
        servers::deleted::STATEMENTS,
        servers::marks::STATEMENTS,
        servers::on_hosts::STATEMENTS,
        servers::statements::STATEMENTS,
        silence::STATEMENTS,
        slow::STATEMENTS,
        stuck::STATEMENTS,
        tenant_usage::STATEMENTS,
        unknown_guests::STATEMENTS,
        usage::STATEMENTS,
        volume_snapshots::STATEMENTS,
        volumes::attachments::STATEMENTS,
        volumes::devices::STATEMENTS,
        volumes::servers::STATEMENTS,
    ]
}
