//! The tables of the compute service and the statements on them.
pub mod aggregates;
pub mod census;
pub mod documents;
pub mod flavors;
pub mod fleet;
pub mod hosts;
pub mod keypairs;
pub mod migrations_aggregates;
pub mod migrations_groups;
pub mod migrations_resources;
pub mod migrations_servers;
pub mod quotas;
pub mod server_groups;
pub mod servers;
pub mod stuck;
pub mod usage;
