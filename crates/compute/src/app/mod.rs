//! What the service does, without HTTP and without SQL.
pub mod boot;
pub mod fleet;
pub mod link;
pub mod resolve;
pub mod extra_specs;
pub mod flavors;
pub mod keypairs;
pub mod quotas;
pub mod services;
pub mod usage;
