//! What the service does, without HTTP and without SQL.
pub mod aggregates;
pub mod bitstreams;
pub mod boot;
pub mod extra_specs;
pub mod flavors;
pub mod fleet;
pub mod keypairs;
pub mod link;
pub mod moves;
pub(crate) mod owners;
pub mod quotas;
pub mod resolve;
pub mod scheduler;
pub mod server_groups;
pub mod services;
pub mod states;
pub mod usage;
