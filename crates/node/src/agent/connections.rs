//! What should be of networks on the host, from the documents that are there, and that it is so.
//!
//! Guests come one by one and the host is made as a whole: whoever comes while it is being made waits
//! for the next time, and many are served by one. A guest that has a document keeps its networks
//! until it is gone, whatever it does; one that no document names keeps what its domain says. What is
//! lost by itself is found when the host is looked at, now and then.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kilonova_ids::ServerId;
use kilonova_node_api::{Batch, Desired, Filters, Interface};
use tokio::sync::Notify;

use crate::network::{Lacking, Network, Wanted};

pub(super) struct Connections {
    host: String,
    network: Arc<dyn Network>,
    every: Duration,
    wanted: Mutex<Versioned>,
    /// Of which version the host was made last, and what it lacked then.
    made: tokio::sync::Mutex<(u64, Lacking)>,
    filtered: Notify,
}

#[derive(Default)]
struct Versioned {
    version: u64,
    wanted: Wanted,
}

impl Versioned {
    /// Sets the connections of a server and says whether they were others.
    fn set(&mut self, server: ServerId, interfaces: Vec<Interface>) -> bool {
        let same = self.wanted.guests.get(&server).map_or(&[][..], Vec::as_slice) == interfaces;
        if same {
            return false;
        }
        if interfaces.is_empty() {
            self.wanted.guests.remove(&server);
        } else {
            self.wanted.guests.insert(server, interfaces);
        }
        self.version += 1;
        true
    }
}

/// Those that lead over a bridge.
fn bridged(interfaces: &[Interface]) -> Vec<Interface> {
    interfaces.iter().filter(|interface| interface.device.is_none()).cloned().collect()
}

impl Connections {
    pub(super) fn new(host: String, network: Arc<dyn Network>, every: Duration) -> Self {
        Self {
            host,
            network,
            every,
            wanted: Mutex::default(),
            made: tokio::sync::Mutex::default(),
            filtered: Notify::new(),
        }
    }

    /// These are all documents of the host.
    pub(super) fn begin(&self, batch: &Batch) {
        if !batch.complete {
            return;
        }
        let mut now = self.now();
        let mut guests = BTreeMap::new();
        for document in &batch.documents {
            let interfaces = match &document.desired {
                Desired::Present(domain) => bridged(&domain.interfaces),
                Desired::Absent => {
                    now.wanted.guests.get(&document.server).cloned().unwrap_or_default()
                }
            };
            if !interfaces.is_empty() {
                guests.insert(document.server, interfaces);
            }
        }
        now.wanted.guests = guests;
        if let Some(filters) = &batch.filters {
            now.wanted.filters = Arc::new((**filters).clone());
        }
        now.version += 1;
    }

    /// A guest that no document names keeps its connections.
    pub(super) fn keep(&self, server: ServerId, interfaces: &[Interface]) {
        self.now().set(server, bridged(interfaces));
    }

    /// Other security groups hold from now on.
    pub(super) fn filter(&self, filters: Filters) {
        let mut now = self.now();
        if *now.wanted.filters != filters {
            now.wanted.filters = Arc::new(filters);
            now.version += 1;
            self.filtered.notify_one();
        }
    }

    /// Has the host ready for a guest's connections, and keeps those that it has had until now.
    pub(super) async fn plug(
        &self,
        server: ServerId,
        interfaces: &[Interface],
    ) -> Result<(), String> {
        let new = bridged(interfaces);
        if new.is_empty() {
            return Ok(());
        }
        let mut all = new.clone();
        {
            let mut now = self.now();
            let has = now.wanted.guests.get(&server).map_or(&[][..], Vec::as_slice);
            let gone = |old: &&Interface| !new.iter().any(|new| new.port == old.port);
            all.extend(has.iter().filter(gone).cloned());
            now.set(server, all);
        }
        let lacking = self.make(false).await;
        lacking.of(&new).map_or(Ok(()), |why| Err(why.to_owned()))
    }

    /// The guest has these connections and no others; without any, what nobody else has goes.
    pub(super) async fn settle(&self, server: ServerId, interfaces: &[Interface]) {
        if self.now().set(server, bridged(interfaces)) {
            self.make(false).await;
        }
    }

    /// Makes the host so, whether or not it should be as it was last made.
    pub(super) async fn look(&self) {
        self.make(true).await;
    }

    /// Makes the host so whenever something else is to go through, and now and then.
    pub(super) async fn follow(&self) -> Infallible {
        loop {
            let idle = self.now().wanted.guests.is_empty();
            let due = async {
                if idle {
                    std::future::pending().await
                } else {
                    tokio::time::sleep(self.every).await;
                }
            };
            tokio::select! {
                () = self.filtered.notified() => { self.make(false).await; }
                () = due => { self.make(true).await; }
            }
        }
    }

    /// Makes the host as it should be now, unless that has been done.
    async fn make(&self, again: bool) -> Lacking {
        let mut made = self.made.lock().await;
        let (version, wanted) = {
            let now = self.now();
            if !again && made.0 == now.version && made.1.is_nothing() {
                return Lacking::default();
            }
            (now.version, now.wanted.clone())
        };
        let lacking = self.network.make(&wanted).await;
        if lacking != made.1 {
            self.say(&lacking);
        }
        *made = (version, lacking.clone());
        lacking
    }

    fn say(&self, lacking: &Lacking) {
        let host = &self.host;
        if let Some(why) = &lacking.all {
            tracing::warn!(%host, %why, "no guest can be on a network");
        }
        for (network, why) in &lacking.networks {
            tracing::warn!(%host, %network, %why, "no guest can be on the network");
        }
        if lacking.is_nothing() {
            tracing::info!(%host, "the networks are as they should be");
        }
    }

    fn now(&self) -> MutexGuard<'_, Versioned> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
