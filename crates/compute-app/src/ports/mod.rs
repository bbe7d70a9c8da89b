//! Ports of servers: the request, its resolution, and binding them to the server's host.
//!
//! Ports belong to the network service. It is called within the transaction that claims, moves or
//! deletes, so that no port is left behind or bound elsewhere. A server without ports costs no
//! statement: its row says so (`Spec::networked`).

mod attach;
mod connections;
mod request;
mod resolve;

use jiff::Timestamp;
use kilonova_accelerator::ledger as devices;
use kilonova_ids::{HostName, ServerId};
use kilonova_network::ledger as networks;
use kilonova_node_api::{Address, Attachment, Interface};
use kilonova_store::Tx;

pub use attach::{PortOwner, add, ask_new, attach, refresh, remove, set_group};
pub use connections::{Connections, connections};
pub use request::{NetworkRequest, PortRequest, no_port};
pub use resolve::{ResolvedPort, ServerPorts, expect, profiles_of, resolve};

use crate::Error;
use kilonova_compute_db::servers;

/// The device name by which an interface refers to it.
fn name_of(device: &Attachment) -> String {
    match device {
        Attachment::Pci { address }
        | Attachment::Vfio { address, .. }
        | Attachment::TestPci { address } => address.clone(),
        Attachment::Mdev { uuid, .. } => uuid.to_string(),
    }
}

/// The interfaces of a server's guest on a host where the server already holds its devices.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn interfaces(
    tx: &mut Tx<'_>,
    server: ServerId,
    host: &HostName,
) -> Result<Vec<Interface>, Error> {
    let ports = networks::of_server(tx, server)?;
    interfaces_of(tx, ports, server, host)
}

/// [`interfaces`] for the server's ports.
pub fn interfaces_of(
    tx: &mut Tx<'_>,
    ports: Vec<networks::ServerPort>,
    server: ServerId,
    host: &HostName,
) -> Result<Vec<Interface>, Error> {
    let held = if ports.iter().any(networks::ServerPort::is_accelerator) {
        devices::of_ports(tx, server, host)?
    } else {
        Vec::new()
    };
    let interface = |port: networks::ServerPort| {
        let device = held.iter().find(|device| device.port == port.id);
        Interface {
            device: device.map(|device| name_of(&device.attachment)),
            port: port.id,
            mac: port.mac,
            network: port.network,
            network_type: port.network_type,
            physical_network: port.physical_network,
            vlan: port.segmentation_id,
            mtu: port.mtu,
            addresses: port.fixed.into_iter().map(address).collect(),
            tag: port.tag,
            dhcp_mac: port.dhcp_mac,
        }
    };
    Ok(ports.into_iter().map(interface).collect())
}

/// [`interfaces`] for a server that may have no ports.
pub fn of_guest(
    tx: &mut Tx<'_>,
    server: &servers::Server,
    host: &HostName,
) -> Result<Vec<Interface>, Error> {
    if server.spec.networked { interfaces(tx, server.id, host) } else { Ok(Vec::new()) }
}

fn address(fixed: networks::Fixed) -> Address {
    Address {
        address: fixed.address,
        prefix: fixed.prefix,
        gateway: fixed.gateway,
        dns: fixed.dns,
        routes: fixed.routes,
        dhcp: fixed.dhcp,
        dhcp_server: fixed.dhcp_server,
    }
}

/// Sets or clears the server's host, and binds or unbinds its ports.
pub fn set_host(
    tx: &mut Tx<'_>,
    server: ServerId,
    host: Option<&HostName>,
    now: Timestamp,
) -> Result<(), Error> {
    if servers::set_host(tx, server, host, now)? {
        bind(tx, server, host, now)?;
    }
    Ok(())
}

/// Binds the ports to the server's host, with the devices that it holds there.
pub fn bind(
    tx: &mut Tx<'_>,
    server: ServerId,
    host: Option<&HostName>,
    now: Timestamp,
) -> Result<(), Error> {
    networks::bind(tx, server, host, now)?;
    let Some(host) = host else { return Ok(()) };
    for device in devices::of_ports(tx, server, host)? {
        let slot = name_of(&device.attachment);
        networks::set_device(tx, server, device.port, device.arq, &slot)?;
    }
    Ok(())
}

/// Deletes the server's ports after a failed boot, and detaches those that existed before.
pub fn detach_all(tx: &mut Tx<'_>, server: &servers::Server, now: Timestamp) -> Result<(), Error> {
    if server.spec.networked {
        networks::detach_all(tx, server.id, now)?;
    }
    Ok(())
}

/// Deletes the server's row and its ports.
pub fn delete(tx: &mut Tx<'_>, server: ServerId, now: Timestamp) -> Result<(), Error> {
    if servers::delete(tx, server)? {
        networks::detach_all(tx, server, now)?;
    }
    Ok(())
}
