//! The requested connections of a server, before any lookup. The API parses them.

use std::net::IpAddr;

use kilonova_ids::{NetworkId, PortId};
use kilonova_wire::Refusal;

/// The requested networks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NetworkRequest {
    /// No `networks`, as allowed before 2.37: the project's only network, if it has one.
    #[default]
    Unspecified,
    /// `auto`: the project's only network, or one that is created for it.
    Auto,
    /// `none`.
    None,
    /// Specific connections.
    Ports(Vec<PortRequest>),
}

/// One requested connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortRequest {
    /// The network of a new port.
    pub network: Option<NetworkId>,
    /// An existing port.
    pub port: Option<PortId>,
    /// A fixed address.
    pub fixed_ip: Option<IpAddr>,
    /// The tag shown to the guest.
    pub tag: Option<String>,
}

/// The refusal of a port that does not exist.
pub fn no_port(id: impl std::fmt::Display) -> Refusal {
    Refusal::bad_request(format!("Port id {id} could not be found."))
}

/// The refusal of a network that does not exist.
pub(super) fn no_network(id: impl std::fmt::Display) -> Refusal {
    Refusal::bad_request(format!("Network {id} could not be found."))
}
