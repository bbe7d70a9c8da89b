//! The operations of the service, without HTTP and without SQL.

pub mod actions;
pub mod aggregates;
pub mod aliases;
pub mod ask;
pub mod bitstreams;
pub mod boot;
pub mod explain;
pub mod extra_specs;
pub mod flavors;
pub mod fleet;
pub mod keypairs;
pub mod link;
pub mod managed_consumers;
pub mod moves;
pub mod nics;
pub(crate) mod owners;
pub mod quotas;
pub mod resolve;
pub mod retire;
pub mod rules;
pub mod scheduler;
pub mod server_groups;
pub mod services;
pub mod states;
pub mod unsupported;
pub mod usage;
