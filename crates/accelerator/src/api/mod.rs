//! The accelerator API, Cyborg's v2: one file per collection, each with its routes, its request
//! and its view. Paths are relative to the mount.

mod access;
mod arqs;
mod attributes;
mod changes;
mod deployables;
mod devices;
mod health;
mod negotiation;
mod orders;
mod profiles;
mod request;
mod rules;
mod versions;

use std::sync::Arc;

use axum::Router;
use http::{Method, StatusCode};
use kilonova_access::{Enforcer, Guarded, Operation, Routes};
use kilonova_placement::World;
use kilonova_store::{Store, Tx};
use kilonova_wire::{Dialect, Fault, Service};
use tokio::sync::Notify;

use crate::ledger::orders as ledger;
use crate::nova::Nova;
use crate::{Bitstreams, Error, Nodes};

pub use rules::RULES;

/// What the handlers and the loops share; cheap to clone.
#[derive(Clone)]
pub struct State {
    pub(crate) store: Store,
    pub(crate) world: World,
    pub(crate) outbox: Option<Outbox>,
    pub(crate) nodes: Option<Arc<dyn Nodes>>,
    pub(crate) bitstreams: Option<Arc<dyn Bitstreams>>,
    pub(crate) policy: Enforcer,
    pub(crate) unbound_limit: i64,
}

/// Unbound requests that a project may have, unless it is said otherwise: twice what one device profile may
/// ask for.
pub const UNBOUND_LIMIT: i64 = 2048;

/// The way to somebody's Nova.
#[derive(Clone)]
pub(crate) struct Outbox {
    pub nova: Arc<dyn Nova>,
    /// There is something new in it.
    pub wake: Arc<Notify>,
}

impl State {
    /// Over a store that [`crate::MIGRATIONS`] and placement's have been applied to.
    pub fn new(store: Store, world: World) -> Self {
        Self {
            store,
            world,
            outbox: None,
            nodes: None,
            bitstreams: None,
            policy: Enforcer::of(RULES, Dialect::Accelerator),
            unbound_limit: UNBOUND_LIMIT,
        }
    }

    /// Over another handle of the same database.
    #[must_use]
    pub fn with_store(self, store: Store) -> Self {
        Self { store, ..self }
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

    /// With who speaks to the nodes. Without, somebody else tells them of orders.
    #[must_use]
    pub fn with_nodes(mut self, nodes: Arc<dyn Nodes>) -> Self {
        self.nodes = Some(nodes);
        self
    }

    /// With how many unbound requests a project may have; less than 0 for no limit.
    #[must_use]
    pub fn with_unbound_limit(self, unbound_limit: i64) -> Self {
        Self { unbound_limit, ..self }
    }

    /// With where bitstreams are.
    #[must_use]
    pub fn with_bitstreams(mut self, bitstreams: Arc<dyn Bitstreams>) -> Self {
        self.bitstreams = Some(bitstreams);
        self
    }

    /// Tells the nodes of what was ordered in the transaction.
    pub(crate) fn announce(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        match &self.nodes {
            Some(nodes) => ledger::announce(tx, &**nodes),
            None => Ok(()),
        }
    }

    /// Makes binds by the API known to a Nova; [`crate::reconcile::start`] delivers.
    #[must_use]
    pub fn telling(mut self, nova: Arc<dyn Nova>) -> Self {
        self.outbox = Some(Outbox { nova, wake: Arc::new(Notify::new()) });
        self
    }

    fn tells_nova(&self) -> bool {
        self.outbox.is_some()
    }

    fn wake_delivery(&self) {
        if let Some(outbox) = &self.outbox {
            outbox.wake.notify_one();
        }
    }
}

/// The routes, to be given to [`kilonova_wire::mount()`]. What is below `/v2` is there without it
/// too, as upstream's: the bookmark links of deployables lead there.
pub fn routes(state: State) -> Router {
    let policy = state.policy.clone();
    table()
        .behind(&policy)
        .method_not_allowed_fallback(|method: Method| async move {
            let text = format!("The method {method} is not allowed for this resource.");
            Fault::new(StatusCode::METHOD_NOT_ALLOWED, text).unrouted()
        })
        .with_state(state)
}

/// All that can be asked, and what decides over it.
pub fn operations() -> Vec<Operation> {
    table().operations()
}

fn table() -> Routes<State> {
    let collections = Routes::new()
        .merge(devices::routes())
        .merge(deployables::routes())
        .merge(attributes::routes())
        .merge(profiles::routes())
        .merge(arqs::routes())
        .merge(changes::routes())
        .merge(orders::routes())
        .merge(health::routes());
    Routes::new().merge(versions::routes()).nest("/v2", collections.clone()).merge(collections)
}

/// A collection, with a slash after its name or without.
fn collection<const N: usize>(path: &str, methods: [Guarded<State>; N]) -> Routes<State> {
    Routes::new().route(path, methods.clone()).route(format!("{path}/"), methods)
}

/// What the layers around the routes need to know.
pub fn service() -> Service {
    Service {
        name: "accelerator",
        dialect: Dialect::Accelerator,
        versions: Some(Arc::new(negotiation::Accelerator)),
        public: versions::is_public,
    }
}
