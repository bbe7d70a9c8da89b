//! The part of Neutron v2 that clients and servers need: networks, subnets, ports, security groups, routers and
//! floating IPs.
//!
//! ```text
//!   api/      one file per resource: routes, request, view
//!   app/      validation, visibility, address allocation
//!   db/       its SQL
//!   ledger/   the functions that the compute service calls within its own transaction
//! ```
//!
//! A network is flat or a VLAN on a physical network that hosts are attached to. This service
//! assigns addresses to ports and records the host of each port; hosts realize this from their
//! documents. A router is realized by one host, which the compute service chooses; this service
//! records that host and the configuration that the router needs. Collections of unsupported
//! resources return 404, except for a few empty ones that clients expect.

mod address;
mod api;
mod app;
mod attributes;
mod db;
mod error;
pub mod ledger;
mod options;
mod record;
mod values;
mod vnic;

use std::sync::Arc;

use kilonova_access::Enforcer;
use kilonova_store::Store;
use kilonova_wire::Dialect;

pub use api::{RENAMED, RULES, operations, reached_with_suffix, routes, service};
pub use db::{MIGRATIONS, statements};
pub use error::Error;
pub use options::NetworkOptions;
pub use vnic::VnicType;

/// The network service; cheap to clone.
#[derive(Clone)]
pub struct Networks {
    store: Store,
    options: Arc<NetworkOptions>,
    policy: Enforcer,
}

impl Networks {
    /// The service over a migrated database.
    pub fn new(store: Store) -> Self {
        Self::with_options(store, NetworkOptions::default())
    }

    /// [`Networks::new`] with the operator's options.
    pub fn with_options(store: Store, options: NetworkOptions) -> Self {
        let policy = Enforcer::of(RULES, Dialect::Network);
        Self { store, options: Arc::new(options), policy }
    }

    /// Replaces upstream's default policy with the operator's.
    #[must_use]
    pub fn with_policy(mut self, policy: Enforcer) -> Self {
        self.policy = policy;
        self
    }

    /// The policy that requests are checked against.
    pub fn policy(&self) -> &Enforcer {
        &self.policy
    }
}
