//! Ports of servers: the request, its resolution, and binding them to the server's host.
//!
//! Ports belong to a network service, which the flows access only through [`Networks`]. It is called within the
//! transaction that creates, moves or deletes the server. A server without ports costs no statement, because its row
//! records that it has none (`Spec::networked`).

mod addresses;
mod attach;
mod connections;
pub mod external;
mod networks;
pub mod neutron;
mod own;
mod profile;
mod project_groups;
mod request;

use jiff::Timestamp;
use kilonova_accelerator::ledger as devices;
use kilonova_ids::{HostName, ServerId};
use kilonova_node_api::{Address, Attachment, Interface};
use kilonova_store::Tx;

pub use addresses::{AddressChange, address_changed, change_address, no_network};
pub use attach::{Added, add, group_changed, record_guest_change, refresh, remove, set_group};
pub(crate) use connections::group_names;
pub use connections::{Connections, connections, security_groups};
pub use kilonova_network::ledger::{Fixed, GroupFacts, ServerPort};
pub use networks::{GuestPorts, Networks, PortOwner, Requested, ResolvedPort, ServerPorts};
pub use own::Own;
pub use profile::{of_flavor, profiles_of};
pub use project_groups::{ProjectGroup, project_groups, source_groups, visible_group};
pub use request::{NetworkRequest, PortRequest, for_interface, no_port};

use crate::Error;
use kilonova_compute_db::servers;

/// The name by which an interface refers to a device.
fn name_of(device: &Attachment) -> String {
    match device {
        Attachment::Pci { address }
        | Attachment::Vfio { address, .. }
        | Attachment::TestPci { address } => address.clone(),
        Attachment::Mdev { uuid, .. } => uuid.to_string(),
    }
}

/// The interfaces of a server's guest for these ports, on a host where the server has already claimed its devices.
///
/// # Errors
/// Store errors only; the same applies to all functions below.
pub fn interfaces_of(
    tx: &mut Tx<'_>,
    ports: Vec<ServerPort>,
    server: ServerId,
    host: &HostName,
) -> Result<Vec<Interface>, Error> {
    let held = if ports.iter().any(ServerPort::is_accelerator) {
        devices::of_ports(tx, server, host)?
    } else {
        Vec::new()
    };
    let interface = |port: ServerPort| {
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
            vif: None,
        }
    };
    Ok(ports.into_iter().map(interface).collect())
}

/// The ports of a guest that is created on a host.
pub fn of_guest(
    tx: &mut Tx<'_>,
    networks: &dyn Networks,
    server: &servers::Server,
    host: &HostName,
) -> Result<GuestPorts, Error> {
    if server.spec.networked {
        networks.move_to(tx, server.id, host)
    } else {
        Ok(GuestPorts::default())
    }
}

/// The ports of a guest that a host receives while the guest still runs on another one.
pub fn of_incoming_guest(
    tx: &mut Tx<'_>,
    networks: &dyn Networks,
    server: &servers::Server,
    host: &HostName,
) -> Result<GuestPorts, Error> {
    if server.spec.networked {
        networks.prepare(tx, server.id, host)
    } else {
        Ok(GuestPorts::default())
    }
}

/// The ports of a guest that is restored on its host after a move failed or was reverted. `None` if its earlier
/// interfaces are still valid and the document can be delivered immediately.
pub fn of_returning_guest(
    tx: &mut Tx<'_>,
    networks: &dyn Networks,
    server: &servers::Server,
    host: &HostName,
) -> Result<Option<GuestPorts>, Error> {
    if server.spec.networked && networks.is_external() {
        networks.move_to(tx, server.id, host).map(Some)
    } else {
        Ok(None)
    }
}

/// Undoes [`of_incoming_guest`] for a host that does not receive the guest.
pub fn leave(
    tx: &mut Tx<'_>,
    networks: &dyn Networks,
    server: &servers::Server,
    host: &HostName,
    now: Timestamp,
) -> Result<(), Error> {
    if server.spec.networked { networks.leave(tx, server.id, host, now) } else { Ok(()) }
}

fn address(fixed: Fixed) -> Address {
    Address {
        address: fixed.address,
        prefix: fixed.prefix,
        gateway: fixed.gateway,
        dns: fixed.dns,
        routes: fixed.routes,
        dhcp: fixed.dhcp,
        dhcp_server: fixed.dhcp_server,
        six: fixed.ipv6_mode,
        floating: fixed.floating,
    }
}

/// Sets or clears the server's host, and binds or unbinds its ports.
pub fn set_host(
    tx: &mut Tx<'_>,
    networks: &dyn Networks,
    server: ServerId,
    host: Option<&HostName>,
    now: Timestamp,
) -> Result<(), Error> {
    if servers::set_host(tx, server, host, now)? {
        bind(tx, networks, server, host, now)?;
    }
    Ok(())
}

/// Binds the ports to the server's host, with the devices that the server has claimed there.
pub fn bind(
    tx: &mut Tx<'_>,
    networks: &dyn Networks,
    server: ServerId,
    host: Option<&HostName>,
    now: Timestamp,
) -> Result<(), Error> {
    networks.bind(tx, server, host, now)?;
    let Some(host) = host else { return Ok(()) };
    for device in devices::of_ports(tx, server, host)? {
        let slot = name_of(&device.attachment);
        networks.set_device(tx, server, device.port, device.arq, &slot)?;
    }
    Ok(())
}

/// Deletes the server's ports after a failed boot, and detaches those that existed before.
pub fn detach_all(
    tx: &mut Tx<'_>,
    networks: &dyn Networks,
    server: &servers::Server,
    now: Timestamp,
) -> Result<(), Error> {
    if server.spec.networked {
        networks.detach_all(tx, server.id, now)?;
    }
    Ok(())
}

/// Deletes the server's row, and deletes or detaches its ports.
pub fn delete(
    tx: &mut Tx<'_>,
    networks: &dyn Networks,
    server: ServerId,
    now: Timestamp,
) -> Result<(), Error> {
    if servers::delete(tx, server)? {
        networks.detach_all(tx, server, now)?;
    }
    Ok(())
}
