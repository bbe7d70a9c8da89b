//! The operations of the compute service: the effects of requests, hosts' reports and loops on
//! servers.
//!
//! [`flows`] contains the operations that take several steps, [`reconcile`] the loops. The crate must never depend on
//! HTTP, contain SQL, or access another service's tables; it calls that service's ledger instead.

pub mod actions;
pub mod aggregates;
pub mod aliases;
pub mod ask;
pub mod attention;
pub mod batch;
pub mod bitstreams;
pub mod boot;
pub mod capacity;
pub mod consoles;
pub mod drain;
pub mod error;
pub mod explain;
pub mod extra_specs;
pub mod flavors;
pub mod floor;
pub mod flows;
pub mod follow;
pub mod image_numbers;
pub mod images;
pub mod keypairs;
mod leases;
pub mod managed_consumers;
pub mod metadata_service;
pub mod microversions;
pub mod moves;
pub mod numa;
pub mod options;
pub mod ports;
pub mod quotas;
pub mod rebalance;
pub mod reconcile;
pub mod renamed_rules;
pub mod resolve;
pub mod retire;
mod rules;
pub mod schemas;
pub mod server_groups;
pub mod services;
pub mod state;
pub mod states;
pub mod statuses;
mod tokens;
pub mod unsupported;
pub mod usage;
pub mod user_data;
pub mod vendordata;
pub mod volumes;
pub mod watch;

pub use error::Error;
pub use options::{Options, Orphans};
pub use renamed_rules::RENAMED;
pub use rules::RULES;
pub use state::Compute;
