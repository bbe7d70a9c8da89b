//! What plugs a host's guests into networks: the seam between the agent and the host.
//!
//! Owns what is asked of it. It is told the whole of what should be each time, never a change, and
//! makes the host so: what is missing is made, what nobody wants any more is taken back, what is
//! right is left alone. It must never touch what it did not make.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use kilonova_ids::{NetworkId, ServerId};
use kilonova_node_api::{Filters, Interface};
use serde::Serialize;

/// All that should be of networks on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Wanted {
    /// The guests' connections that lead over a bridge of the host.
    pub guests: BTreeMap<ServerId, Vec<Interface>>,
    /// What goes through them.
    pub filters: Arc<Filters>,
}

/// What could not be made so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lacking {
    /// Why guests cannot be on a network.
    pub networks: BTreeMap<NetworkId, String>,
    /// Why they cannot be on any.
    pub all: Option<String>,
}

/// What came of it.
pub type Making<'a> = Pin<Box<dyn Future<Output = Lacking> + Send + 'a>>;

/// The networks of a host. Safe to repeat, and to drop half-way.
pub trait Network: Send + Sync + 'static {
    /// Makes the host so.
    fn make<'a>(&'a self, wanted: &'a Wanted) -> Making<'a>;
}

impl Wanted {
    /// All connections.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.guests.values().flatten()
    }
}

impl Lacking {
    /// Whether all is as wanted.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Why a guest cannot have these connections.
    pub fn of(&self, interfaces: &[Interface]) -> Option<&str> {
        let of_network =
            || interfaces.iter().find_map(|interface| self.networks.get(&interface.network));
        self.all.as_ref().or_else(of_network).map(String::as_str)
    }
}
