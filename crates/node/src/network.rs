//! The interface between the agent and the networks of its host.
//!
//! The implementation always gets the complete desired state, never a change, and reconciles the
//! host with it: it creates the missing parts, removes those that are no longer desired, and leaves
//! the rest unchanged. It must never touch anything that it did not create, except what libvirt has left of a guest.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use kilonova_ids::{NetworkId, RouterId, ServerId};
use kilonova_node_api::{Filters, Interface, Router};
use serde::Serialize;

use crate::metadata::GuestRequests;

/// The desired networks of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DesiredNetworks {
    /// The guests' interfaces for which the host needs links: those on our bridges and those with a
    /// hybrid plug.
    pub guests: BTreeMap<ServerId, Vec<Interface>>,
    /// The packet filters of those interfaces.
    pub filters: Arc<Filters>,
    /// The routers of the host.
    #[serde(skip_serializing_if = "is_none")]
    pub routers: Arc<Vec<Router>>,
}

fn is_none(routers: &Arc<Vec<Router>>) -> bool {
    routers.is_empty()
}

/// The networks and routers that could not be set up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkFailures {
    /// The networks that could not be set up, with the reasons.
    pub networks: BTreeMap<NetworkId, String>,
    /// The routers that could not be set up, with the reasons.
    pub routers: BTreeMap<RouterId, String>,
    /// Why no network could be set up.
    pub all: Option<String>,
}

/// The future of [`Network::make`].
pub type NetworkFuture<'a> = Pin<Box<dyn Future<Output = NetworkFailures> + Send + 'a>>;

/// The future of [`Network::unplug`].
pub type UnplugFuture<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// The future of [`Network::resume`].
pub type ResumeFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The networks of a host. Every call is idempotent and may be dropped at any point.
pub trait Network: Send + Sync + 'static {
    /// Reconciles the host with the desired state.
    fn make<'a>(&'a self, wanted: &'a DesiredNetworks) -> NetworkFuture<'a>;

    /// Removes from Open vSwitch the ports of a stopped guest's interfaces that libvirt plugs itself. libvirt removes
    /// them when the guest stops, but a loss of power leaves them. Leaves the ports of other guests, also of a guest
    /// that has the same interface by now.
    fn unplug<'a>(&'a self, _server: ServerId, _interfaces: &'a [Interface]) -> UnplugFuture<'a> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// From now on, passes the guests' metadata requests to this handler. Returns false if guests cannot
    /// send any.
    fn serve_metadata(&self, _guests: Arc<dyn GuestRequests>) -> bool {
        false
    }

    /// Serves metadata again on the networks of these guests, except networks that no longer exist on
    /// the host. Changes nothing else, because the agent has no documents yet and therefore no packet
    /// filters.
    fn resume<'a>(&'a self, _guests: &'a DesiredNetworks) -> ResumeFuture<'a> {
        Box::pin(std::future::ready(()))
    }
}

impl DesiredNetworks {
    /// True if the host needs no network.
    pub fn is_empty(&self) -> bool {
        self.guests.is_empty() && self.routers.is_empty()
    }

    /// All interfaces, with the servers that have them.
    pub fn interfaces(&self) -> impl Iterator<Item = (ServerId, &Interface)> {
        self.guests.iter().flat_map(|(server, all)| all.iter().map(move |one| (*server, one)))
    }
}

impl DesiredNetworks {
    /// The server with this address on the network: a fixed address, or the link-local address derived from its MAC
    /// address. `None` if no server or several servers have it.
    pub fn server_at(&self, network: NetworkId, address: IpAddr) -> Option<ServerId> {
        let has = |interface: &&Interface| {
            let of = match address {
                IpAddr::V6(six) => interface.link_local() == Some(six),
                IpAddr::V4(_) => false,
            };
            interface.network == network
                && interface.uses_own_bridge()
                && (of || interface.addresses.iter().any(|fixed| fixed.address == address))
        };
        let mut all = self
            .guests
            .iter()
            .flat_map(|(server, interfaces)| interfaces.iter().filter(has).map(move |_| *server));
        let first = all.next()?;
        all.all(|other| other == first).then_some(first)
    }
}

impl NetworkFailures {
    /// True if everything was set up.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Why a guest cannot have these interfaces; `None` if it can.
    pub fn of(&self, interfaces: &[Interface]) -> Option<&str> {
        let of_network =
            || interfaces.iter().find_map(|interface| self.networks.get(&interface.network));
        self.all.as_ref().or_else(of_network).map(String::as_str)
    }
}
