//! The connections of a server as its row keeps them: small, and readable after a restart.

use std::net::IpAddr;

use kilonova_ids::{NetworkId, PortId};
use serde::{Deserialize, Serialize};

use super::resolve::{Connection, Source};

/// The request for a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// A new port.
    New {
        /// Its network.
        network: NetworkId,
        /// Its requested address.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fixed_ip: Option<IpAddr>,
    },
    /// A port that the user supplied.
    Existing(PortId),
    /// A new port on the network that Neutron creates for the project.
    Allocated,
}

/// A connection in a server's goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The request.
    pub wish: Wish,
    /// The port, once its id has been recorded.
    pub known: Option<PortId>,
}

impl Wanted {
    /// The port, if it has an id.
    pub fn port(&self) -> Option<PortId> {
        match (self.known, &self.wish) {
            (Some(port), _) => Some(port),
            (None, Wish::Existing(port)) => Some(*port),
            (None, Wish::New { .. } | Wish::Allocated) => None,
        }
    }

    /// The network of a port that must be created.
    pub fn network(&self) -> Option<NetworkId> {
        match (self.known, &self.wish) {
            (None, Wish::New { network, .. }) => Some(*network),
            (_, Wish::New { .. } | Wish::Existing(_) | Wish::Allocated) => None,
        }
    }

    /// True if the port is created for the server.
    pub fn is_made(&self) -> bool {
        match self.wish {
            Wish::New { .. } | Wish::Allocated => true,
            Wish::Existing(_) => false,
        }
    }
}

impl From<&Connection> for Wish {
    fn from(connection: &Connection) -> Self {
        match &connection.source {
            Source::New { network, fixed_ip } => {
                Self::New { network: network.id, fixed_ip: *fixed_ip }
            }
            Source::Existing(port) => Self::Existing(port.id),
            Source::Allocated => Self::Allocated,
        }
    }
}
