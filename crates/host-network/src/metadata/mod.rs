//! The metadata service on the networks of this host, at [`ADDRESS`] and [`ADDRESS_SIX`] of each.
//!
//! ```text
//!   socket   a listening socket inside a network's namespace
//!   http     requests on it: bounded in size, time and number
//!   limits   what one guest may use
//! ```
//!
//! The packet filter and the permanent neighbour entries of the namespace guarantee that a request
//! from an address comes from the guest with that address, and that no other guest gets the answer.
//! This module must never know the content of answers.

mod http;
mod limits;
mod socket;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kilonova_ids::NetworkId;
use kilonova_node::GuestRequests;
use tokio::task::JoinSet;

use limits::Limits;
pub(crate) use socket::{Space, has_six};

/// The service's IPv4 address.
pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// Its IPv6 address.
pub(crate) const ADDRESS_SIX: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe);
/// Its port.
pub(crate) const PORT: u16 = 80;

/// The sockets of all networks. Dropping it closes them.
#[derive(Default)]
pub(crate) struct Listeners {
    state: Mutex<State>,
    limits: Arc<Limits>,
}

#[derive(Default)]
struct State {
    guests: Option<Arc<dyn GuestRequests>>,
    open: BTreeMap<NetworkId, Listener>,
}

/// The sockets of a network.
struct Listener {
    space: Space,
    /// One task per socket, which accepts connections and never returns.
    tasks: JoinSet<()>,
    sockets: usize,
}

impl Listener {
    fn works(&mut self) -> bool {
        while self.tasks.try_join_next().is_some() {}
        self.tasks.len() == self.sockets
    }
}

impl Listeners {
    /// Passes requests to `guests` from now on, and reopens the sockets that served an earlier one.
    pub fn serve(&self, guests: Arc<dyn GuestRequests>) {
        let mut state = self.lock();
        state.guests = Some(guests);
        state.open.clear();
    }

    /// Closes the sockets of other networks.
    pub fn keep_only(&self, wanted: &BTreeSet<NetworkId>) {
        self.lock().open.retain(|network, _| wanted.contains(network));
    }

    /// Opens the sockets of a network in its namespace, unless they are open there.
    pub async fn open(&self, network: NetworkId, space: Space) -> Result<(), String> {
        let guests = {
            let mut state = self.lock();
            let Some(guests) = state.guests.clone() else { return Ok(()) };
            if let Some(listener) = state.open.get_mut(&network)
                && listener.space == space
                && listener.works()
            {
                return Ok(());
            }
            state.open.remove(&network);
            guests
        };
        let sockets = socket::open(space.clone()).await?;
        let mut tasks = JoinSet::new();
        let count = sockets.len();
        for socket in sockets {
            let service = http::Service {
                network,
                guests: Arc::clone(&guests),
                limits: Arc::clone(&self.limits),
            };
            tasks.spawn(http::serve(socket, service));
        }
        self.lock().open.insert(network, Listener { space, tasks, sockets: count });
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
