//! The accelerator API, Cyborg's v2: one file per collection, each with its routes, requests and
//! views. Paths are relative to the mount point.

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
use http::Method;
use kilonova_access::{Enforcer, Guarded, Operation, Routes};
use kilonova_placement::World;
use kilonova_store::{Store, Tx};
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Dialect, Fault, Refusal, Service};
use tokio::sync::Notify;

use crate::ledger::orders as ledger;
use crate::nova::Nova;
use crate::{Bitstreams, Error, HostNotifier};

pub use rules::RULES;

/// The state that handlers and loops share; cheap to clone.
#[derive(Clone)]
pub struct State {
    pub(crate) store: Store,
    pub(crate) world: World,
    pub(crate) outbox: Option<Outbox>,
    pub(crate) nodes: Option<Arc<dyn HostNotifier>>,
    pub(crate) bitstreams: Option<Arc<dyn Bitstreams>>,
    pub(crate) policy: Enforcer,
    pub(crate) unbound_limit: i64,
}

/// Default limit of unbound requests per project: twice the maximum of one device profile.
pub const UNBOUND_LIMIT: i64 = 2048;

/// The connection to an external Nova.
#[derive(Clone)]
pub(crate) struct Outbox {
    pub nova: Arc<dyn Nova>,
    /// Signals new entries.
    pub wake: Arc<Notify>,
}

impl State {
    /// A state without a host notifier, bitstreams or an external Nova. The store must have [`crate::MIGRATIONS`] and
    /// Placement's migrations.
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

    /// Uses another handle to the same database.
    #[must_use]
    pub fn with_store(self, store: Store) -> Self {
        Self { store, ..self }
    }

    /// Uses the operator's policy instead of upstream's defaults.
    #[must_use]
    pub fn with_policy(mut self, policy: Enforcer) -> Self {
        self.policy = policy;
        self
    }

    /// The policy.
    pub fn policy(&self) -> &Enforcer {
        &self.policy
    }

    /// Sets the notifier of hosts. Without it, another component must notify them of orders.
    #[must_use]
    pub fn with_nodes(mut self, nodes: Arc<dyn HostNotifier>) -> Self {
        self.nodes = Some(nodes);
        self
    }

    /// Limits the unbound requests of a project; a negative number disables the limit.
    #[must_use]
    pub fn with_unbound_limit(self, unbound_limit: i64) -> Self {
        Self { unbound_limit, ..self }
    }

    /// Sets the source of bitstreams.
    #[must_use]
    pub fn with_bitstreams(mut self, bitstreams: Arc<dyn Bitstreams>) -> Self {
        self.bitstreams = Some(bitstreams);
        self
    }

    /// Notifies the hosts of the orders of this transaction.
    pub(crate) fn announce(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        match &self.nodes {
            Some(nodes) => ledger::announce(tx, &**nodes),
            None => Ok(()),
        }
    }

    /// Sets the external Nova to notify of binds made through the API. [`crate::reconcile::start`] delivers the
    /// events.
    #[must_use]
    pub fn telling(mut self, nova: Arc<dyn Nova>) -> Self {
        self.outbox = Some(Outbox { nova, wake: Arc::new(Notify::new()) });
        self
    }

    fn notifies_nova(&self) -> bool {
        self.outbox.is_some()
    }

    fn wake_delivery(&self) {
        if let Some(outbox) = &self.outbox {
            outbox.wake.notify_one();
        }
    }
}

/// The routes, for [`kilonova_wire::mount()`]. Paths below `/v2` also exist without the prefix, as
/// upstream's do, because the bookmark links of deployables use them.
pub fn routes(state: State) -> Router {
    let policy = state.policy.clone();
    table()
        .behind(&policy)
        .method_not_allowed_fallback(|method: Method| async move {
            let text = format!("The method {method} is not allowed for this resource.");
            Fault::from(Refusal::new(Kind::MethodNotAllowed, text)).unrouted()
        })
        .with_state(state)
}

/// All operations and the rules that guard them.
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

/// Routes of a collection, with and without a trailing slash.
fn collection<const N: usize>(path: &str, methods: [Guarded<State>; N]) -> Routes<State> {
    Routes::new().route(path, methods.clone()).route(format!("{path}/"), methods)
}

/// The description of the service for the layers around the routes.
pub fn service() -> Service {
    Service {
        name: "accelerator",
        dialect: Dialect::Accelerator,
        versions: Some(Arc::new(negotiation::Accelerator)),
        public: versions::is_public,
    }
}
