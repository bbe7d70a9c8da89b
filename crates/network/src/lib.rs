//! Neutron v2, the part that clients and servers need: networks, subnets, ports, security groups.
//!
//! ```text
//!   api/      one file per resource: routes, request, view
//!   app/      what it does: whose things are, which values go together, which address is next
//!   db/       its SQL
//!   ledger/   what the compute service does here, with its own transaction
//! ```
//!
//! Networks are flat or VLANs on a physical network that hosts are plugged into. This service decides
//! which port has which address and is where; what a host does for that it does by its documents.
//! There are no routers and no floating addresses, and it must never pretend that there are: those
//! collections are empty, and making one is refused.

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

use std::sync::Arc;

use kilonova_access::Enforcer;
use kilonova_store::Store;
use kilonova_wire::Dialect;

pub use api::{RULES, operations, routes, service};
pub use db::{MIGRATIONS, statements};
pub use error::Error;
pub use options::Options;

/// The network service; cheap to clone.
#[derive(Clone)]
pub struct Networks {
    store: Store,
    options: Arc<Options>,
    policy: Enforcer,
}

impl Networks {
    /// The service over a migrated database.
    pub fn new(store: Store) -> Self {
        Self::with_options(store, Options::default())
    }

    /// [`Networks::new`] with what the operator decided.
    pub fn with_options(store: Store, options: Options) -> Self {
        let policy = Enforcer::of(RULES, Dialect::Network);
        Self { store, options: Arc::new(options), policy }
    }

    /// With the policy that the operator configured, in place of upstream's defaults.
    #[must_use]
    pub fn with_policy(mut self, policy: Enforcer) -> Self {
        self.policy = policy;
        self
    }

    /// Who may do what.
    pub fn policy(&self) -> &Enforcer {
        &self.policy
    }
}
