//! The HTTP face: one file per resource, each with its routes, how it reads requests and how it
//! shows rows. It decides nothing about resources; that is `app`'s.

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

use std::sync::Arc;

use axum::Router;
use kilonova_policy::Policy;
use kilonova_store::{Store, Tx};
use kilonova_wire::{Dialect, Service};

use crate::app::allocations::{self as consumers, Change, Keeper};
use crate::{Error, World};
pub use rules::{RULES, policy};

/// What the routes need.
#[derive(Clone)]
pub struct Placement {
    /// The database.
    pub store: Store,
    /// The picture that searches run on.
    pub world: World,
    /// Who may do what.
    pub policy: Arc<Policy>,
    /// Who keeps consumers that the API must not change.
    pub keeper: Option<Arc<dyn Keeper>>,
}

impl Placement {
    /// Refuses a change of consumers that another service of this process keeps.
    fn refuse_kept(&self, tx: &mut Tx<'_>, changes: &[Change]) -> Result<(), Error> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        changes.iter().try_for_each(|change| consumers::refuse_kept(tx, &**keeper, change.consumer))
    }
}

/// All routes, relative to the mount.
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

/// How the service presents itself to the layers around it.
pub fn service() -> Service {
    Service {
        name: "placement",
        dialect: Dialect::Placement,
        versions: Some(Arc::new(version::Versions)),
        public: |path| path.is_empty() || path == "/",
    }
}
