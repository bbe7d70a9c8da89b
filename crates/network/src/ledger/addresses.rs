//! Changes to the addresses of servers' ports.

use std::net::IpAddr;

use jiff::Timestamp;
use kilonova_ids::{NetworkId, ServerId};
use kilonova_store::Tx;

use crate::Error;
use crate::app::ports;

/// Adds an address of a network to a server's port there. Returns false if the server has no port on the network, or
/// the network has no subnet whose addresses can be chosen.
///
/// # Errors
/// `IpAddressGenerationFailure` if no address is free, 400 if the port has too many; database errors.
pub fn add_address(
    tx: &mut Tx<'_>,
    server: ServerId,
    network: NetworkId,
    now: Timestamp,
) -> Result<bool, Error> {
    ports::add_address(tx, server, network, now)
}

/// Removes an address from the port of a server that has it, and disassociates a floating IP with this fixed address.
/// Returns false if no port of the server has the address.
///
/// # Errors
/// Database errors.
pub fn remove_address(
    tx: &mut Tx<'_>,
    server: ServerId,
    address: IpAddr,
    now: Timestamp,
) -> Result<bool, Error> {
    ports::remove_address(tx, server, address, now)
}
