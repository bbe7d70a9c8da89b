//! The port of who answers for addresses on a network: one for a network, on all of its hosts the same.
//!
//! It has an address on each subnet where guests ask for theirs: the last one that is free, as users
//! like the first ones. Each host answers its own guests with it and lets nobody else see it, so it
//! is bound to none. A subnet that has no address left has nobody who answers.

use kilonova_ids::PortId;
use kilonova_store::Tx;
use serde_json::json;

use super::ports as app;
use super::subnets as subnet_app;
use crate::Error;
use crate::address;
use crate::db::networks::{self, Network};
use crate::db::ports::{self as rows, Port};
use crate::db::subnets::{self, Subnet};
use crate::error::refused;
use crate::record::Record;

/// What such a port says that it is.
pub(crate) const OWNER: &str = "network:dhcp";
/// Addresses that are tried, from the last one.
const TRIES: u128 = 32;

/// Gives the port its addresses after subnets have changed; makes or removes it as needed.
pub(crate) fn settle(tx: &mut Tx<'_>, network: &Network, now: i64) -> Result<(), Error> {
    let served: Vec<Subnet> = subnets::of_network(tx, network.id)?
        .into_iter()
        .filter(|subnet| subnet.record.flag("enable_dhcp"))
        .collect();
    let mut port = match networks::dhcp_port(tx, network.id)? {
        Some(id) => rows::find(tx, id)?,
        None => None,
    };
    if let Some(port) = &mut port {
        let is_served = |id| served.iter().any(|subnet: &Subnet| subnet.record.id == id);
        for (subnet, _) in port.addresses.clone() {
            if !is_served(subnet) {
                rows::free_on(tx, port.record.id, subnet)?;
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
        _ => Ok(()),
    }
}

fn make(tx: &mut Tx<'_>, network: &Network, now: i64) -> Result<Port, Error> {
    let mut body = app::defaults();
    for (key, value) in [
        ("device_owner", json!(OWNER)),
        ("security_groups", json!([])),
        ("port_security_enabled", json!(false)),
    ] {
        body.insert(key.to_owned(), value);
    }
    let port = Port {
        // Nobody's, so that it counts for nobody's quota; the network's owner sees it.
        record: Record::new("", body, now),
        network: network.id,
        mac: String::new(),
        device_id: format!("dhcp-{}", network.id),
        host: String::new(),
        server: None,
        made_for: None,
        ordinal: 0,
        arq: None,
        pci_slot: None,
        tag: None,
        addresses: Vec::new(),
    };
    let port = app::insert(tx, port, true, Some(&[]))?;
    networks::set_dhcp_port(tx, network.id, Some(port.record.id))?;
    Ok(port)
}

fn take_last(tx: &mut Tx<'_>, port: &mut Port, subnet: &Subnet) -> Result<(), Error> {
    let like = subnet_app::cidr(&subnet.record)?.base();
    let pools = subnet_app::pools(&subnet.record)?;
    let mut left = TRIES;
    let only = pools.iter().map(|pool| (pool.last - pool.first).saturating_add(1)).sum::<u128>();
    if only < 2 {
        return Ok(());
    }
    for pool in pools.iter().rev() {
        let mut number = pool.last;
        while left > 0 && number >= pool.first {
            left -= 1;
            let ip = address::address(like, number);
            if rows::take(tx, port.record.id, port.addresses.len(), subnet.record.id, ip)? {
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
    Ok(rows::delete(tx, port)?)
}

/// The network is to go, and nobody answers there any more.
pub(crate) fn leave(tx: &mut Tx<'_>, network: &Network) -> Result<(), Error> {
    match networks::dhcp_port(tx, network.id)? {
        Some(port) => remove(tx, network, port),
        None => Ok(()),
    }
}

/// The subnet is to go, and nobody answers there any more.
pub(crate) fn leave_subnet(tx: &mut Tx<'_>, subnet: &Subnet) -> Result<(), Error> {
    match networks::dhcp_port(tx, subnet.network)? {
        Some(port) => Ok(rows::free_on(tx, port, subnet.record.id)?),
        None => Ok(()),
    }
}

/// Users neither change nor remove it.
pub(crate) fn check(port: &Port) -> Result<(), Error> {
    if port.record.text("device_owner") == OWNER && port.record.project.is_empty() {
        let id = port.record.id;
        return Err(refused(409, "ServicePortInUse", format!(
            "Port {id} cannot be changed or deleted directly via the port API: it has the device owner \
             {OWNER}. It goes with enable_dhcp of the subnets."
        ))
        .into());
    }
    Ok(())
}
