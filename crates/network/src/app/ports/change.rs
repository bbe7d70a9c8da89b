//! Updates a port. Only the compute service changes the attributes that attach a port to a server.

use std::net::IpAddr;

use jiff::Timestamp;
use kilonova_access::Caller;
use kilonova_ids::{NetworkId, PortId, ServerId, SubnetId};
use kilonova_store::Tx;
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;
use serde_json::{Value, json};

use super::super::addresses::{self, FixedIp};
use super::super::{dhcp, routers, subnets as subnet_app, targets};
use super::{
    ATTRIBUTES, check_pairs, fixed_ips, host_of, kept, mac_in_use, own_mac, record_change, secure,
    seen,
};
use crate::attributes::{of_change, permitted};
use crate::db::floating;
use crate::db::networks::Network;
use crate::db::ports::{self as rows, Port};
use crate::db::subnets;
use crate::error::{invalid_value, refused};
use crate::record::Body;
use crate::values::MAX_FIXED_IPS;
use crate::{Error, VnicType};

pub(crate) fn update(
    tx: &mut Tx<'_>,
    caller: &Caller,
    id: PortId,
    sent: &Body,
    now: Timestamp,
) -> Result<(Port, Network), Error> {
    let (mut port, network) = seen(tx, caller, id)?;
    let user = sent.get("device_owner").and_then(Value::as_str);
    let user = user.unwrap_or_else(|| port.record.text("device_owner")).to_owned();
    let project = port.record.project.clone();
    targets::port_with(&port, &user, &network).may(caller, "update_port")?;
    dhcp::check(tx, &port)?;
    let before = port.record.texts("security_groups");
    let mut set = of_change(ATTRIBUTES, sent)?;
    let target = targets::port_with(&port, &user, &network).sent(&set);
    permitted(ATTRIBUTES, "update_port", caller, &set, &target)?;
    refuse_attached(&port, &set)?;
    if FIXED.iter().any(|key| set.contains_key(*key)) {
        routers::check_port(tx, &port)?;
    }
    let mut whole = port.record.body.clone();
    whole.extend(set.clone());
    let mut named = set.clone();
    if !set.contains_key("security_groups") && whole["port_security_enabled"] == true {
        // The security groups remain.
        named.insert("security_groups".into(), whole["security_groups"].clone());
    }
    if set.contains_key("allowed_address_pairs") {
        let mac = set.get("mac_address").and_then(Value::as_str).unwrap_or(&port.mac);
        check_pairs(&set, Some(mac))?;
    }
    secure(tx, caller, &project, &named, &mut whole, now)?;
    set.insert("security_groups".into(), whole["security_groups"].clone());
    let before_mac = port.mac.clone();
    if let Some(mac) = set.get("mac_address").and_then(Value::as_str) {
        mac.clone_into(&mut port.mac);
    }
    if let Some(device) = set.get("device_id").and_then(Value::as_str) {
        device.clone_into(&mut port.device_id);
    }
    if let Some(host) = set.get("binding:host_id") {
        port.host = host_of(host);
    }
    let moved = set.get("mac_address").is_some_and(|mac| *mac != json!(before_mac));
    let mut requested = fixed_ips(&set);
    let mut chosen = port.addresses.clone();
    if moved || requested.is_some() {
        // The MAC address determines the addresses on automatic subnets.
        let all = subnets::of_network(tx, port.network)?;
        let automatic = |id: &SubnetId| {
            all.iter().any(|one| one.record.id == *id && subnet_app::is_automatic(&one.record))
        };
        chosen.retain(|(subnet, _)| !automatic(subnet));
    }
    if moved && requested.is_none() && chosen.len() < port.addresses.len() {
        let same = |(subnet, ip): &(SubnetId, IpAddr)| FixedIp {
            subnet: Some(*subnet),
            address: Some(*ip),
        };
        requested = Some(chosen.iter().map(same).collect());
    }
    port.record.change(kept(set), now);
    port.vnic_type = VnicType::of(&port.record.body)?;
    rows::update(tx, &port).map_err(|error| match error {
        kilonova_store::Error::Unique(_) => mac_in_use(&port).into(),
        other => Error::Store(other),
    })?;
    if let Some(requested) = requested {
        let same = requested.len() == port.addresses.len()
            && requested.iter().zip(&port.addresses).all(|(request, (subnet, ip))| {
                request.subnet.is_none_or(|id| id == *subnet) && request.address == Some(*ip)
            });
        if !same {
            let keep = keep(&requested, &chosen);
            readdress(tx, &mut port, &keep, now)?;
        }
    }
    record_change(tx, &port, &before)?;
    Ok((port, network))
}

/// Gives a port exactly these addresses, and those that its MAC address determines.
fn readdress(
    tx: &mut Tx<'_>,
    port: &mut Port,
    addresses: &[FixedIp],
    now: Timestamp,
) -> Result<(), Error> {
    let id = port.record.id;
    rows::release(tx, id)?;
    let mac = own_mac(port).map(str::to_owned);
    port.addresses = addresses::allocate(tx, id, port.network, mac.as_deref(), Some(addresses))?;
    Ok(floating::release_lost(tx, id, now)?)
}

/// Adds an address of a network to the server's first port there. Returns false if the server has no port on the
/// network, or the network has no subnet whose addresses can be chosen.
pub(crate) fn add_address(
    tx: &mut Tx<'_>,
    server: ServerId,
    network: NetworkId,
    now: Timestamp,
) -> Result<bool, Error> {
    let mut on_network =
        rows::of_server(tx, server)?.into_iter().filter(|port| port.network == network);
    let Some(mut port) = on_network.next() else { return Ok(false) };
    let mut all = subnets::of_network(tx, network)?;
    all.retain(|subnet| !subnet_app::is_automatic(&subnet.record));
    if all.is_empty() {
        return Ok(false);
    }
    if port.addresses.len() >= MAX_FIXED_IPS {
        let why = format!("at most {MAX_FIXED_IPS} fixed IPs can be set");
        return Err(invalid_value("fixed_ips", why).into());
    }
    let among: Vec<_> = all.iter().collect();
    let added = addresses::next(tx, port.record.id, port.addresses.len(), network, &among)?;
    port.addresses.push(added);
    changed(tx, &mut port, now)?;
    Ok(true)
}

/// Removes an address from the port of a server that has it. Returns false if there is none.
pub(crate) fn remove_address(
    tx: &mut Tx<'_>,
    server: ServerId,
    address: IpAddr,
    now: Timestamp,
) -> Result<bool, Error> {
    let has = |port: &Port| port.addresses.iter().any(|(_, ip)| *ip == address);
    let Some(mut port) = rows::of_server(tx, server)?.into_iter().find(has) else {
        return Ok(false);
    };
    let rest = port.addresses.iter().filter(|(_, ip)| *ip != address);
    let rest: Vec<FixedIp> =
        rest.map(|(subnet, ip)| FixedIp { subnet: Some(*subnet), address: Some(*ip) }).collect();
    readdress(tx, &mut port, &rest, now)?;
    changed(tx, &mut port, now)?;
    Ok(true)
}

/// Counts a change to a port's addresses as a change to the port, and records it for the hosts.
fn changed(tx: &mut Tx<'_>, port: &mut Port, now: Timestamp) -> Result<(), Error> {
    port.record.change(Body::new(), now);
    rows::update(tx, port)?;
    let groups = port.record.texts("security_groups");
    record_change(tx, port, &groups)
}

/// Completes each requested fixed IP that names only a subnet: the port keeps an address that it
/// has on that subnet.
pub(crate) fn keep(requested: &[FixedIp], has: &[(SubnetId, IpAddr)]) -> Vec<FixedIp> {
    let mut left: Vec<_> = has.to_vec();
    let mut kept = Vec::new();
    for request in requested {
        let mut request = *request;
        if let (Some(subnet), None) = (request.subnet, request.address)
            && let Some(at) = left.iter().position(|(of, ip)| {
                *of == subnet && !requested.iter().any(|other| other.address == Some(*ip))
            })
        {
            request.address = Some(left.remove(at).1);
        }
        kept.push(request);
    }
    kept
}

/// Attributes that no update may change if the port belongs to a router or to a floating IP.
const FIXED: &[&str] =
    &["fixed_ips", "mac_address", "device_id", "device_owner", "binding:host_id"];

/// Refuses changes to attributes that attach the port to its server.
fn refuse_attached(port: &Port, set: &Body) -> Result<(), Refusal> {
    let Some(server) = port.server else { return Ok(()) };
    let differs = |key: &str, has: &Value| set.get(key).is_some_and(|value| value != has);
    let owner = port.record.body.get("device_owner").cloned().unwrap_or(Value::Null);
    for (key, has) in [
        ("device_id", json!(port.device_id)),
        ("device_owner", owner),
        ("binding:host_id", json!(port.host.as_deref().unwrap_or_default())),
        ("binding:vnic_type", json!(port.vnic_type.as_str())),
        ("mac_address", json!(port.mac)),
    ] {
        if differs(key, &has) {
            return Err(refused(
                Kind::Conflict,
                "PortInUse",
                format!(
                    "Unable to complete operation on port {} for network {}. Port already has an attached \
                 device {server}. Remove the port from the server to change its {key}.",
                    port.record.id, port.network
                ),
            ));
        }
    }
    Ok(())
}
