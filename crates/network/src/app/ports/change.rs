//! Changes of a port. What ties it to its server is the compute service's to change.

use std::net::IpAddr;

use kilonova_ids::{PortId, SubnetId};
use kilonova_store::Tx;
use kilonova_wire::{Context, Fault};
use serde_json::{Value, json};

use super::super::addresses::{self, FixedIp};
use super::super::{dhcp, networks};
use super::{
    ATTRIBUTES, KIND, fixed_ips, kept, mac_in_use, on_own_network, secure, seen,
    serves_the_network, told,
};
use crate::Error;
use crate::attributes::of_change;
use crate::db::ports::{self as rows, Port};
use crate::error::{not_allowed, refused};
use crate::record::Body;

pub(crate) fn update(
    tx: &mut Tx<'_>,
    context: &Context,
    id: PortId,
    sent: &Body,
    now: i64,
) -> Result<Port, Error> {
    let mut port = seen(tx, context, id)?;
    if !context.may_see(&port.record.project) {
        return Err(not_allowed("update_port").into());
    }
    dhcp::check(&port)?;
    let before = port.record.texts("security_groups");
    let mut set = of_change(ATTRIBUTES, KIND, context, sent)?;
    let network = networks::seen(tx, context, port.network)?;
    for special in ["mac_address", "fixed_ips", "allowed_address_pairs", "port_security_enabled"] {
        if set.contains_key(special) {
            on_own_network(context, &network, &format!("update_port:{special}"))?;
        }
    }
    if serves_the_network(&set) {
        on_own_network(context, &network, "update_port:device_owner")?;
    }
    attached(&port, &set)?;
    let mut whole = port.record.body.clone();
    whole.extend(set.clone());
    let mut named = set.clone();
    if !set.contains_key("security_groups") {
        // What the port has stays, unless it loses its security.
        named.insert("security_groups".into(), whole["security_groups"].clone());
        if whole["port_security_enabled"] == false && port.record.flag("port_security_enabled") {
            named.remove("security_groups");
        }
    }
    secure(tx, context, &port.record.project.clone(), &named, &mut whole, now)?;
    set.insert("security_groups".into(), whole["security_groups"].clone());
    if let Some(mac) = set.get("mac_address").and_then(Value::as_str) {
        mac.clone_into(&mut port.mac);
    }
    if let Some(device) = set.get("device_id").and_then(Value::as_str) {
        device.clone_into(&mut port.device_id);
    }
    if let Some(host) = set.get("binding:host_id") {
        host.as_str().unwrap_or_default().clone_into(&mut port.host);
    }
    let asked = fixed_ips(&set);
    port.record.change(kept(set), now);
    rows::update(tx, &port).map_err(|error| match error {
        kilonova_store::Error::Unique(_) => mac_in_use(&port).into(),
        other => Error::Store(other),
    })?;
    if let Some(asked) = asked {
        let same = asked.len() == port.addresses.len()
            && asked.iter().zip(&port.addresses).all(|(wish, (subnet, ip))| {
                wish.subnet.is_none_or(|wish| wish == *subnet) && wish.address == Some(*ip)
            });
        if !same {
            let keep = keep(&asked, &port.addresses);
            rows::free(tx, id)?;
            port.addresses = addresses::give(tx, id, port.network, Some(&keep))?;
        }
    }
    told(tx, &port, &before)?;
    Ok(port)
}

/// A wish that names a subnet alone is met by the address that the port has there.
fn keep(asked: &[FixedIp], has: &[(SubnetId, IpAddr)]) -> Vec<FixedIp> {
    let mut left: Vec<_> = has.to_vec();
    let mut wishes = Vec::new();
    for wish in asked {
        let mut wish = *wish;
        if let (Some(subnet), None) = (wish.subnet, wish.address)
            && let Some(at) = left.iter().position(|(of, ip)| {
                *of == subnet && !asked.iter().any(|other| other.address == Some(*ip))
            })
        {
            wish.address = Some(left.remove(at).1);
        }
        wishes.push(wish);
    }
    wishes
}

/// What ties a port to its server is the compute service's to change.
fn attached(port: &Port, set: &Body) -> Result<(), Fault> {
    let Some(server) = port.server else { return Ok(()) };
    let differs = |key: &str, has: &Value| set.get(key).is_some_and(|value| value != has);
    let kind = port.record.body.get("binding:vnic_type").cloned().unwrap_or(Value::Null);
    let owner = port.record.body.get("device_owner").cloned().unwrap_or(Value::Null);
    for (key, has) in [
        ("device_id", json!(port.device_id)),
        ("device_owner", owner),
        ("binding:host_id", json!(port.host)),
        ("binding:vnic_type", kind),
        ("mac_address", json!(port.mac)),
    ] {
        if differs(key, &has) {
            return Err(refused(
                409,
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
