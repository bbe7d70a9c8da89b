//! The actions `addFixedIp` and `removeFixedIp`, which change the addresses of a server's ports.

use std::net::IpAddr;

use jiff::Timestamp;
use kilonova_compute_db::servers::Server;
use kilonova_ids::{NetworkId, ServerId};
use kilonova_store::Tx;
use kilonova_wire::Refusal;

use crate::{Compute, Error};

/// A change to the addresses of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressChange {
    /// A further address of this network.
    Add(NetworkId),
    /// Without this address.
    Remove(IpAddr),
}

impl AddressChange {
    /// The refusal if no port of the server has the address, or is on the network.
    pub(super) fn no_port(self, server: ServerId) -> Refusal {
        match self {
            Self::Add(_) => no_network(server),
            Self::Remove(ip) => {
                Refusal::bad_request(format!("Instance {server} does not have fixed IP '{ip}'."))
            }
        }
    }
}

/// The refusal of a network to which the server is not connected.
pub fn no_network(server: ServerId) -> Refusal {
    Refusal::not_found(format!("Network could not be found for instance {server}."))
}

/// Records a change that another service has made to the addresses of a server's ports.
///
/// # Errors
/// Store errors only.
pub fn address_changed(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    now: Timestamp,
) -> Result<(), Error> {
    compute.networks.record_guest_change(tx, server.id, now)
}

/// Adds an address to a port of a server, or removes one.
///
/// # Errors
/// 404 if the server has no port on the network, 400 if it does not have the address or the network has no free one.
pub fn change_address(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: &Server,
    change: AddressChange,
    now: Timestamp,
) -> Result<(), Error> {
    compute.networks.change_address(tx, server.id, change, now)
}
