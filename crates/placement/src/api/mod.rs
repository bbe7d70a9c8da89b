//! The HTTP API: one file per resource, each with its routes, requests and views. Decisions about
//! resources belong to `app`.

mod aggregates;
mod allocation_candidates;
mod allocations;
mod call;
mod candidates_query;
mod candidates_view;
mod filters;
mod inventories;
mod reshaper;
mod resource_classes;
mod resource_providers;
mod root;
mod rules;
mod schemas;
mod syntax;
mod traits;
mod usages;
mod validate;
mod version;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use kilonova_ids::ProviderId;
use kilonova_policy::Policy;
use kilonova_store::{Store, Tx};
use kilonova_wire::{Dialect, Service};

use crate::app::allocations::{self as consumers, AllocationChange, ConsumerManager};
use crate::db::providers;
use crate::{Error, World};
pub use rules::{RULES, policy};

/// State of the routes.
#[derive(Clone)]
pub struct Placement {
    /// The database.
    pub store: Store,
    /// The in-memory copy of all providers, which searches use.
    pub world: World,
    /// The policy.
    pub policy: Arc<Policy>,
    /// Identifies consumers that clients of the API must not change, and learns of the clients' changes to providers.
    pub manager: Option<Arc<dyn ConsumerManager>>,
}

impl Placement {
    /// Refuses changes to consumers that another service in this process manages.
    fn refuse_managed(&self, tx: &mut Tx<'_>, changes: &[AllocationChange]) -> Result<(), Error> {
        let Some(manager) = &self.manager else { return Ok(()) };
        changes.iter().try_for_each(|change| {
            consumers::refuse_managed(tx, &**manager, change.consumer, Some(change))
        })
    }

    /// Performs a client's change to the trees of some providers, and then tells the manager. The order prevents
    /// deadlocks: a host's registration also locks the tree before the row of the host.
    fn change_trees<T>(
        &self,
        tx: &mut Tx<'_>,
        changed: impl IntoIterator<Item = ProviderId>,
        work: impl FnOnce(&mut Tx<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Some(manager) = &self.manager else { return work(tx) };
        let mut roots = BTreeSet::new();
        for provider in changed {
            // Read first, because the change may delete the provider.
            roots.extend(providers::by_id(tx, provider)?.map(|row| row.root));
        }
        let done = work(tx)?;
        for root in roots {
            manager.tree_changed(tx, root)?;
        }
        Ok(done)
    }
}

/// All routes, relative to the mount point.
pub fn routes(state: Placement) -> Router {
    Router::new()
        .merge(root::routes())
        .merge(resource_providers::routes())
        .merge(inventories::routes())
        .merge(aggregates::routes())
        .merge(traits::routes())
        .merge(resource_classes::routes())
        .merge(allocations::routes())
        .merge(usages::routes())
        .merge(allocation_candidates::routes())
        .merge(reshaper::routes())
        .with_state(state)
}

/// The description of the service for the layers around it.
pub fn service() -> Service {
    Service {
        name: "placement",
        dialect: Dialect::Placement,
        versions: Some(Arc::new(version::Versions)),
        public: |path| path.is_empty() || path == "/",
    }
}
