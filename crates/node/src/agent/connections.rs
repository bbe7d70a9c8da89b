//! Keeps the host's networks in the state that the documents describe.
//!
//! Servers change one at a time, but the host is reconciled as a whole: callers that arrive during
//! a run wait for the next one, which serves all of them. A server with a document keeps its
//! networks, regardless of its state, until its domain is undefined; a domain without a document
//! keeps the interfaces of its definition. A periodic run repairs other losses.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kilonova_ids::{HostName, NetworkId, ServerId};
use kilonova_node_api::{Batch, Desired, Filters, Interface, Router};
use tokio::sync::Notify;

use crate::network::{DesiredNetworks, Network, NetworkFailures};

pub(super) struct Connections {
    host: HostName,
    network: Arc<dyn Network>,
    every: Duration,
    desired: Mutex<Versioned>,
    /// The version that was last applied, and the networks that could not be set up.
    made: tokio::sync::Mutex<(u64, NetworkFailures)>,
    filtered: Notify,
    /// The guests that the agent found at startup, until it receives documents.
    found: Mutex<DesiredNetworks>,
    /// The interfaces of guests whose ports could not be removed from Open vSwitch.
    left: tokio::sync::Mutex<BTreeMap<ServerId, Vec<Interface>>>,
}

#[derive(Default)]
struct Versioned {
    version: u64,
    desired: DesiredNetworks,
}

impl Versioned {
    /// Sets a server's interfaces. Returns whether they changed.
    fn set(&mut self, server: ServerId, interfaces: Vec<Interface>) -> bool {
        let same = self.desired.guests.get(&server).map_or(&[][..], Vec::as_slice) == interfaces;
        if same {
            return false;
        }
        if interfaces.is_empty() {
            self.desired.guests.remove(&server);
        } else {
            self.desired.guests.insert(server, interfaces);
        }
        self.version += 1;
        true
    }
}

/// The interfaces for which the agent creates links on the host. The others are connected by
/// libvirt, or are devices.
fn linked(interfaces: &[Interface]) -> Vec<Interface> {
    interfaces.iter().filter(|interface| interface.needs_links()).cloned().collect()
}

impl Connections {
    pub(super) fn new(host: HostName, network: Arc<dyn Network>, every: Duration) -> Self {
        Self {
            host,
            network,
            every,
            desired: Mutex::default(),
            made: tokio::sync::Mutex::default(),
            filtered: Notify::new(),
            found: Mutex::default(),
            left: tokio::sync::Mutex::default(),
        }
    }

    /// Replaces the desired networks with those of a complete batch of documents. Ignores an
    /// incomplete batch.
    pub(super) fn begin(&self, batch: &Batch) {
        if !batch.complete {
            return;
        }
        let mut now = self.now();
        let mut guests = BTreeMap::new();
        for document in &batch.documents {
            let interfaces = match &document.desired {
                Desired::Present(domain) => linked(&domain.config.interfaces),
                Desired::Absent => {
                    now.desired.guests.get(&document.server).cloned().unwrap_or_default()
                }
            };
            if !interfaces.is_empty() {
                guests.insert(document.server, interfaces);
            }
        }
        now.desired.guests = guests;
        *self.found() = DesiredNetworks::default();
        if let Some(filters) = &batch.filters {
            now.desired.filters = Arc::new((**filters).clone());
        }
        if let Some(routers) = &batch.routers {
            now.desired.routers = Arc::new(routers.clone());
            self.filtered.notify_one();
        }
        now.version += 1;
    }

    /// Keeps the interfaces of a guest without a document.
    pub(super) fn keep_interfaces(&self, server: ServerId, interfaces: &[Interface]) {
        self.now().set(server, linked(interfaces));
    }

    /// The server with this address on the network.
    pub(super) fn server_at(&self, network: NetworkId, address: IpAddr) -> Option<ServerId> {
        let server = self.now().desired.server_at(network, address);
        server.or_else(|| self.found().server_at(network, address))
    }

    /// Serves the metadata of the guests that the agent found at startup, before it receives documents.
    pub(super) async fn resume(&self, guests: BTreeMap<ServerId, Vec<Interface>>) {
        let linked = guests.into_iter().map(|(server, all)| (server, linked(&all)));
        let guests = linked.filter(|(_, interfaces)| !interfaces.is_empty()).collect();
        let found = DesiredNetworks { guests, ..DesiredNetworks::default() };
        *self.found() = found.clone();
        self.network.resume(&found).await;
    }

    /// The packet filters.
    pub(super) fn filters(&self) -> Arc<Filters> {
        Arc::clone(&self.now().desired.filters)
    }

    /// Replaces the packet filters. Returns whether they changed.
    pub(super) fn filter(&self, filters: Filters) -> bool {
        let mut now = self.now();
        let changed = *now.desired.filters != filters;
        if changed {
            now.desired.filters = Arc::new(filters);
            now.version += 1;
            self.filtered.notify_one();
        }
        changed
    }

    /// Replaces the routers.
    pub(super) fn route(&self, routers: Vec<Router>) {
        let mut now = self.now();
        if *now.desired.routers != routers {
            now.desired.routers = Arc::new(routers);
            now.version += 1;
            self.filtered.notify_one();
        }
    }

    /// Sets up the networks for a guest's interfaces, and keeps those of its previous interfaces.
    pub(super) async fn set_up(
        &self,
        server: ServerId,
        interfaces: &[Interface],
    ) -> Result<(), String> {
        // The guest is about to use its ports again.
        if interfaces.iter().any(|interface| interface.native_plug().is_some()) {
            self.left.lock().await.remove(&server);
        }
        let new = linked(interfaces);
        if new.is_empty() {
            return Ok(());
        }
        let mut all = new.clone();
        {
            let mut now = self.now();
            let has = now.desired.guests.get(&server).map_or(&[][..], Vec::as_slice);
            let gone = |old: &&Interface| !new.iter().any(|new| new.port == old.port);
            all.extend(has.iter().filter(gone).cloned());
            now.set(server, all);
        }
        let failures = self.make(false).await;
        failures.of(&new).map_or(Ok(()), |why| Err(why.to_owned()))
    }

    /// Sets the guest's interfaces to exactly these, and removes unused networks.
    pub(super) async fn set_exactly(&self, server: ServerId, interfaces: &[Interface]) {
        if self.now().set(server, linked(interfaces)) {
            self.make(false).await;
        }
    }

    /// Removes what a loss of power has left of a stopped guest's interfaces in Open vSwitch. A failure prevents nothing
    /// else, as with Nova: the port carries no traffic. It is retried until the agent ends or the guest is set up again,
    /// and further removals wait for that.
    pub(super) async fn unplug(&self, server: ServerId, interfaces: &[Interface]) {
        let native = interfaces.iter().filter(|interface| interface.native_plug().is_some());
        let mut native: Vec<Interface> = native.cloned().collect();
        if native.is_empty() {
            return;
        }
        let mut left = self.left.lock().await;
        if left.is_empty() {
            let Err(why) = self.network.unplug(server, &native).await else { return };
            let taps: Vec<String> = native.iter().map(Interface::tap).collect();
            tracing::warn!(
                host = %self.host, %server, %why,
                "could not remove the ports {taps:?} from Open vSwitch, which a loss of power may have left there; retrying: \
                 check that Open vSwitch runs"
            );
            self.filtered.notify_one();
        }
        left.entry(server).or_default().append(&mut native);
    }

    /// Repeats the removals that have failed, until one fails again.
    async fn unplug_left(&self) {
        let mut left = self.left.lock().await;
        if left.is_empty() {
            return;
        }
        while let Some(entry) = left.first_entry() {
            if let Err(why) = self.network.unplug(*entry.key(), entry.get()).await {
                tracing::debug!(host = %self.host, %why, "Open vSwitch does not remove ports yet");
                return;
            }
            entry.remove();
        }
        tracing::info!(host = %self.host, "removed the ports that were left in Open vSwitch");
    }

    /// Reconciles the host even if nothing has changed.
    pub(super) async fn reconcile(&self) {
        self.make(true).await;
    }

    /// Reconciles the host whenever the filters or the routers change, and periodically.
    pub(super) async fn follow(&self) -> Infallible {
        loop {
            let idle = self.now().desired.is_empty();
            let is_left = !self.left.lock().await.is_empty();
            let retry = async {
                if is_left {
                    tokio::time::sleep(self.every).await;
                } else {
                    std::future::pending().await
                }
            };
            let due = async {
                if idle {
                    std::future::pending().await
                } else {
                    tokio::time::sleep(self.every).await;
                }
            };
            tokio::select! {
                () = self.filtered.notified() => { self.make(false).await; }
                () = retry => { self.unplug_left().await; }
                () = due => { self.make(true).await; }
            }
        }
    }

    /// Reconciles the host. Without `again`, does nothing if the current version was applied
    /// without failures.
    async fn make(&self, again: bool) -> NetworkFailures {
        let mut made = self.made.lock().await;
        let (version, desired) = {
            let now = self.now();
            if !again && made.0 == now.version && made.1.is_empty() {
                return NetworkFailures::default();
            }
            (now.version, now.desired.clone())
        };
        let failures = self.network.make(&desired).await;
        if failures != made.1 {
            self.log_failures(&failures);
        }
        *made = (version, failures.clone());
        failures
    }

    fn log_failures(&self, failures: &NetworkFailures) {
        let host = &self.host;
        if let Some(why) = &failures.all {
            tracing::warn!(%host, %why, "could not set up any network");
        }
        for (network, why) in &failures.networks {
            tracing::warn!(%host, %network, %why, "could not set up a network");
        }
        for (router, why) in &failures.routers {
            tracing::warn!(%host, %router, %why, "could not set up a router");
        }
        if failures.is_empty() {
            tracing::info!(%host, "all networks are set up");
        }
    }

    fn found(&self) -> MutexGuard<'_, DesiredNetworks> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> MutexGuard<'_, Versioned> {
        self.desired.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
