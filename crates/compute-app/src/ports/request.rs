//! The requested connections of a server, before any lookup. The API parses them.

use std::net::IpAddr;

use kilonova_ids::{NetworkId, PortId};
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;

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

/// Codes of refusals that have different kinds for a boot and for an interface of an existing server. Clients of the
/// compute service never see a code.
mod codes {
    pub const NO_PORT: &str = "PortNotFound";
    pub const NO_NETWORK: &str = "NetworkNotFound";
    pub const AMBIGUOUS: &str = "NetworkAmbiguous";
    pub const ADDRESS_IN_USE: &str = "FixedIpAlreadyInUse";
    pub const PORT_IN_USE: &str = "PortInUse";
}

/// The refusal of a port that does not exist.
pub fn no_port(id: impl std::fmt::Display) -> Refusal {
    Refusal::bad_request(format!("Port id {id} could not be found.")).with_code(codes::NO_PORT)
}

/// The refusal of a network that does not exist.
pub(super) fn no_network(id: impl std::fmt::Display) -> Refusal {
    Refusal::bad_request(format!("Network {id} could not be found.")).with_code(codes::NO_NETWORK)
}

/// The refusal of a request without a network, if there are several.
pub(super) fn ambiguous() -> Refusal {
    let words = "Multiple possible networks found, use a Network ID to be more specific.";
    Refusal::conflict(words).with_code(codes::AMBIGUOUS)
}

/// The refusal of an address that another port has.
pub(super) fn address_in_use(words: String) -> Refusal {
    Refusal::bad_request(words).with_code(codes::ADDRESS_IN_USE)
}

/// The refusal of a port that was taken after the check of the request.
pub(super) fn taken_meanwhile(port: impl std::fmt::Display) -> Refusal {
    Refusal::bad_request(format!("Port {port} is still in use.")).with_code(codes::PORT_IN_USE)
}

/// The form that a refusal of a boot has for an interface of an existing server: upstream answers some of them with
/// other codes there (`create` in `nova/api/openstack/compute/attach_interfaces.py`).
#[must_use]
pub fn for_interface(refusal: Refusal, line: &PortRequest) -> Refusal {
    let (kind, message) = match (refusal.code, line.fixed_ip) {
        (codes::NO_PORT | codes::NO_NETWORK, _) => (Kind::NotFound, refusal.message),
        (codes::AMBIGUOUS, _) => (Kind::BadRequest, refusal.message),
        (codes::PORT_IN_USE, _) => (Kind::Conflict, refusal.message),
        (codes::ADDRESS_IN_USE, Some(ip)) => {
            (Kind::Conflict, format!("Fixed IP {ip} is already in use."))
        }
        _ => return refusal,
    };
    Refusal { kind, message, ..refusal }
}
