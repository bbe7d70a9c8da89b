//! The DHCP port of a network: one per network, the same on all of its hosts.
//!
//! The port has an address on each subnet with DHCP: the highest free one, because users tend to pick low
//! ones. Every host answers its own guests with this address and hides it from the physical network,
//! so the port is not bound to a host. A subnet without a free address has no DHCP server.

use jiff::Timestamp;
use kilonova_ids::PortId;
use kilonova_store::Tx;
use kilonova_wire::time;

use super::addresses::FixedIp;
use super::ports as app;
use super::subnets as subnet_app;
use crate::Error;
use crate::address;
use crate::db::networks::{self, Network};
use crate::db::ports::{self as rows, Port};
use crate::db::subnets::{self, Subnet};
use crate::error::refused;
use kilonova_wire::refusal::Kind;

/// The `device_owner` of a DHCP port.
pub(crate) const OWNER: &str = "network:dhcp";
/// Maximum number of addresses to try, from the highest down.
const ATTEMPTS: u128 = 32;

/// Adjusts the DHCP port to the network's subnets; creates or removes the port as needed.
pub(crate) fn reconcile(tx: &mut Tx<'_>, network: &Network, now: Timestamp) -> Result<(), Error> {
    let served: Vec<Subnet> = subnets::of_network(tx, network.id)?
        .into_iter()
        .filter(|subnet| subnet.record.flag("enable_dhcp"))
        .collect();
    let mut port = match networks::dhcp_port(tx, network.id)? {
        Some(id) => rows::find(tx, id)?,
        None => None,
    };
    let before = port.as_ref().map(|port| port.addresses.clone());
    if let Some(port) = &mut port {
        let is_served = |id| served.iter().any(|subnet: &Subnet| subnet.record.id == id);
        for (subnet, _) in port.addresses.clone() {
            if !is_served(subnet) {
                rows::release_on(tx, port.record.id, subnet)?;
            }
        }
        port.addresses.retain(|(subnet, _)| is_served(*subnet));
    }
    for subnet in &served {
        let has = port
            .as_ref()
            .is_some_and(|port| port.addresses.iter().any(|(other, _)| *other == subnet.record.id));
        if has {
            continue;
        }
        let mut made = match port.take() {
            Some(port) => port,
            None => make(tx, network, now)?,
        };
        take_last(tx, &mut made, subnet)?;
        port = Some(made);
    }
    match port {
        Some(port) if port.addresses.is_empty() => remove(tx, network, port.record.id),
        Some(port) if before.is_some_and(|before| before != port.addresses) => {
            Ok(rows::revise(tx, port.record.id, now)?)
        }
        _ => Ok(()),
    }
}

fn make(tx: &mut Tx<'_>, network: &Network, now: Timestamp) -> Result<Port, Error> {
    let port = app::insert(tx, blank(network, now), true, Some(&[]))?;
    networks::set_dhcp_port(tx, network.id, Some(port.record.id))?;
    Ok(port)
}

/// A DHCP port without MAC address and addresses. It has no project, so that no quota counts it; the network's owner
/// sees it.
fn blank(network: &Network, now: Timestamp) -> Port {
    app::serving("", network.id, OWNER, &format!("dhcp-{}", network.id), now)
}

fn take_last(tx: &mut Tx<'_>, port: &mut Port, subnet: &Subnet) -> Result<(), Error> {
    let like = subnet_app::cidr(&subnet.record)?.base();
    let pools = subnet_app::pools(&subnet.record)?;
    let mut left = ATTEMPTS;
    let only = pools.iter().map(|pool| (pool.last - pool.first).saturating_add(1)).sum::<u128>();
    if only < 2 {
        return Ok(());
    }
    for pool in pools.iter().rev() {
        let mut number = pool.last;
        while left > 0 && number >= pool.first {
            left -= 1;
            let ip = address::address(like, number);
            if rows::allocate(tx, port.record.id, port.addresses.len(), subnet.record.id, ip)? {
                port.addresses.push((subnet.record.id, ip));
                return Ok(());
            }
            let Some(next) = number.checked_sub(1) else { break };
            number = next;
        }
    }
    Ok(())
}

fn remove(tx: &mut Tx<'_>, network: &Network, port: PortId) -> Result<(), Error> {
    networks::set_dhcp_port(tx, network.id, None)?;
    Ok(rows::delete(tx, port, time::now())?)
}

/// Removes the DHCP port of a network that is being deleted.
pub(crate) fn remove_port(tx: &mut Tx<'_>, network: &Network) -> Result<(), Error> {
    match networks::dhcp_port(tx, network.id)? {
        Some(port) => remove(tx, network, port),
        None => Ok(()),
    }
}

/// Releases the DHCP port's address on a subnet that is being deleted.
pub(crate) fn release_address(
    tx: &mut Tx<'_>,
    subnet: &Subnet,
    now: Timestamp,
) -> Result<(), Error> {
    if let Some(port) = networks::dhcp_port(tx, subnet.network)? {
        rows::release_on(tx, port, subnet.record.id)?;
        if subnet.record.flag("enable_dhcp") {
            rows::revise(tx, port, now)?;
        }
    }
    Ok(())
}

/// True for the DHCP port of its network. Other ports with this `device_owner` are ordinary ports of users.
pub(crate) fn serves(tx: &mut Tx<'_>, port: &Port) -> Result<bool, Error> {
    Ok(port.record.text("device_owner") == OWNER
        && networks::dhcp_port(tx, port.network)? == Some(port.record.id))
}

/// Prevents users from changing a DHCP port.
pub(crate) fn check(tx: &mut Tx<'_>, port: &Port) -> Result<(), Error> {
    if serves(tx, port)? {
        let id = port.record.id;
        return Err(refused(
            Kind::Conflict,
            "ServicePortInUse",
            format!(
                "Port {id} cannot be changed directly via the port API: it has the device owner \
                 {OWNER}. Disable enable_dhcp of its subnets to remove it."
            ),
        )
        .into());
    }
    Ok(())
}

/// Deletes a DHCP port and makes a new one in its place, as upstream's agent does (`_port_delete` in
/// `neutron/agent/dhcp/agent.py`).
///
/// The new port has the MAC address and the addresses of the old one. Hosts know a DHCP port by these only, and guests
/// have routes to its address, so neither is affected.
pub(crate) fn replace(
    tx: &mut Tx<'_>,
    network: &Network,
    old: &Port,
    now: Timestamp,
) -> Result<(), Error> {
    let same = |&(subnet, ip)| FixedIp { subnet: Some(subnet), address: Some(ip) };
    let addresses: Vec<FixedIp> = old.addresses.iter().map(same).collect();
    rows::delete(tx, old.record.id, now)?;
    let port = Port { mac: old.mac.clone(), ..blank(network, now) };
    let port = app::insert(tx, port, false, Some(&addresses))?;
    Ok(networks::set_dhcp_port(tx, network.id, Some(port.record.id))?)
}
