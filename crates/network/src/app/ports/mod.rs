//! Ports, which connect guests to networks.

mod change;
mod secure;
mod view;

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;
use kilonova_access::Caller;
use kilonova_ids::{HostName, NetworkId, PortId, SubnetId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Refusal, time};
use serde_json::{Value, json};

use super::addresses::{self, FixedIp};
use super::targets::{self, Target};
use super::{Reach, dhcp, networks, quotas, routers};
use crate::address::{self, Cidr};
use crate::attributes::{Attribute, empty, none, nothing, of_new, owner, permitted, yes};
use crate::db::changes::{self, NetworkChange};
use crate::db::networks::Network;
use crate::db::ports::{self as rows, Port};
use crate::db::subnets::{self, Subnet};
use crate::error::{not_found, refused};
use crate::record::{Body, Record};
use crate::{Error, VnicType, values};

pub(crate) use change::{add_address, keep, remove_address, update};
use secure::{check_pairs, secure};
pub(crate) use view::{status, view, views};

pub(crate) const KIND: &str = "port";

/// Number of random MAC addresses to try before the port is refused.
const ATTEMPTS: usize = 16;

/// The attributes.
pub(crate) const ATTRIBUTES: &[Attribute] = &[
    Attribute::required("network_id", values::uuid),
    Attribute::new("name", values::text, empty),
    Attribute::new("description", values::long_text, empty),
    Attribute::new("admin_state_up", values::flag, yes),
    Attribute::new("mac_address", values::mac, none),
    Attribute::new("fixed_ips", values::fixed_ips, none),
    Attribute::new("device_id", values::text, empty),
    Attribute::new("device_owner", values::text, empty),
    Attribute::new("security_groups", values::uuids, none),
    Attribute::new("allowed_address_pairs", values::pairs, nothing),
    Attribute::new("extra_dhcp_opts", values::empty_or_none, nothing),
    Attribute::new("port_security_enabled", values::flag, yes),
    Attribute::new("binding:vnic_type", values::vnic_type, || json!("normal")),
    Attribute::new("binding:host_id", values::text_or_none, empty),
    Attribute::new("binding:profile", values::object, || json!({})),
    Attribute::new("device_profile", values::text_or_none, none).fixed(),
    Attribute::new("dns_name", values::dns_name, empty),
    Attribute::new("dns_domain", values::dns_name, empty),
    Attribute::new("numa_affinity_policy", values::only_none, none),
    Attribute::new("qos_policy_id", values::only_none, none),
    Attribute::new("propagate_uplink_status", values::flag, yes),
    Attribute::new("hints", values::only_none, none),
    Attribute::new("tags", values::tags, nothing),
];

/// Attributes that have columns of their own.
const COLUMNS: &[&str] =
    &["network_id", "mac_address", "fixed_ips", "device_id", "binding:host_id"];

/// A port and its network, if visible to the caller.
pub(crate) fn seen(tx: &mut Tx<'_>, caller: &Caller, id: PortId) -> Result<(Port, Network), Error> {
    let missing = || not_found(KIND, id);
    let port = rows::find(tx, id)?.ok_or_else(missing)?;
    let network = networks::of(tx, port.network)?;
    let target = targets::of_port(&port, &network);
    let visible = visible(caller, Reach::of(caller), &port, &network, &target);
    if visible { Ok((port, network)) } else { Err(missing().into()) }
}

fn visible(
    caller: &Caller,
    reach: Reach<'_>,
    port: &Port,
    network: &Network,
    target: &Target<'_>,
) -> bool {
    let reached = reach.covers(&port.record.project) || reach.covers(&network.project);
    reached && target.allows(caller, "get_port")
}

/// The host in a request; an empty name means no host.
fn host_of(value: &Value) -> Option<HostName> {
    value.as_str().filter(|name| !name.is_empty()).map(HostName::verbatim)
}

fn fixed_ips(body: &Body) -> Option<Vec<FixedIp>> {
    fixed_ips_in(body.get("fixed_ips")?)
}

/// The requested addresses in a list.
pub(crate) fn fixed_ips_in(list: &Value) -> Option<Vec<FixedIp>> {
    let list = list.as_array()?;
    let read = |value: &Value| FixedIp {
        subnet: value["subnet_id"].as_str().and_then(parse_uuid_like::<SubnetId>),
        address: value["ip_address"].as_str().and_then(|text| text.parse::<IpAddr>().ok()),
    };
    Some(list.iter().map(read).collect())
}

pub(crate) fn create(
    tx: &mut Tx<'_>,
    caller: &Caller,
    sent: &Body,
    now: Timestamp,
) -> Result<(Port, Network), Error> {
    let project = owner(caller, sent)?;
    let mut body = of_new(ATTRIBUTES, sent)?;
    let id = parse_uuid_like::<NetworkId>(body["network_id"].as_str().unwrap_or_default());
    let id = id.ok_or_else(|| not_found("network", &body["network_id"]))?;
    let network = networks::seen(tx, caller, id)?;
    let mut set = body.clone();
    set.retain(|name, _| sent.contains_key(name));
    let user = body["device_owner"].as_str().unwrap_or_default();
    let target = targets::port(&project, user, &network).sent(&body);
    permitted(ATTRIBUTES, "create_port", caller, &set, &target)?;
    quotas::check(tx, &project, quotas::PORT, 1)?;
    if !sent.contains_key("port_security_enabled") {
        body.insert("port_security_enabled".into(), json!(network.flag("port_security_enabled")));
    }
    check_pairs(&body, body["mac_address"].as_str())?;
    secure(tx, caller, &project, sent, &mut body, now)?;
    let requested = fixed_ips(&body);
    let mac = body["mac_address"].as_str().map(str::to_owned);
    let text = |body: &Body, key: &str| body[key].as_str().unwrap_or_default().to_owned();
    let port = Port {
        network: id,
        mac: mac.clone().unwrap_or_default(),
        device_id: text(&body, "device_id"),
        host: host_of(&body["binding:host_id"]),
        vnic_type: VnicType::of(&body)?,
        server: None,
        made_for: None,
        ordinal: 0,
        arq: None,
        pci_slot: None,
        tag: None,
        addresses: Vec::new(),
        record: Record::new(&project, kept(body), now),
    };
    Ok((insert(tx, port, mac.is_none(), requested.as_deref())?, network))
}

/// Adds a port and allocates its addresses; `any_mac` generates a MAC address.
pub(crate) fn insert(
    tx: &mut Tx<'_>,
    port: Port,
    any_mac: bool,
    requested: Option<&[FixedIp]>,
) -> Result<Port, Error> {
    let all = subnets::of_network(tx, port.network)?;
    let (port, pending) = begin_insert(tx, port, any_mac, &all, requested)?;
    pending.check(tx)?;
    Ok(port)
}

/// [`insert`] on a network with these subnets, but leaves the last answers pending.
pub(crate) fn begin_insert(
    tx: &mut Tx<'_>,
    mut port: Port,
    any_mac: bool,
    all: &[Subnet],
    requested: Option<&[FixedIp]>,
) -> Result<(Port, addresses::Pending), Error> {
    let (id, network) = (port.record.id, port.network);
    for _ in 0..ATTEMPTS {
        if any_mac {
            port.mac = random_mac();
        }
        let inserted = rows::ask_insert(tx, &port)?;
        if requested.is_none() {
            addresses::expect(tx, all)?;
        }
        if rows::is_done(tx, inserted)? {
            let mac = own_mac(&port).map(str::to_owned);
            let (given, pending) =
                addresses::begin(tx, id, network, all, mac.as_deref(), requested)?;
            port.addresses = given;
            let groups = port.record.texts("security_groups");
            changes::add_groups(tx, id, &groups)?;
            members(tx, &groups)?;
            return Ok((port, pending));
        }
        if !any_mac {
            break;
        }
    }
    Err(mac_in_use(&port).into())
}

/// The MAC address from which automatic addresses are derived; `None` for a port of the service
/// itself.
fn own_mac(port: &Port) -> Option<&str> {
    (!port.record.text("device_owner").starts_with("network:")).then_some(&*port.mac)
}

/// Allocates addresses to the ports of a network on a new subnet with automatic addresses. The
/// caller records the change to the network.
pub(crate) fn add_automatic(tx: &mut Tx<'_>, subnet: &Subnet, prefix: &Cidr) -> Result<(), Error> {
    let query = rows::PortQuery { network: Some(subnet.network.to_string()), ..Default::default() };
    let (mut given, mut groups) = (Vec::new(), BTreeSet::new());
    for port in rows::list(tx, &query)? {
        let Some(ip) = own_mac(&port).and_then(|mac| address::eui64(prefix, mac)) else { continue };
        given.push((port.record.id, port.addresses.len(), ip));
        groups.extend(port.record.texts("security_groups"));
    }
    if let Some(ip) = rows::allocate_all(tx, subnet.record.id, &given)? {
        return Err(refused(
            Kind::Conflict,
            "IpAddressAlreadyAllocated",
            format!("IP address {ip} already allocated in subnet {}", subnet.record.id),
        )
        .into());
    }
    members(tx, &groups.into_iter().collect::<Vec<_>>())
}

/// Records that the members of these groups changed.
fn members(tx: &mut Tx<'_>, groups: &[String]) -> Result<(), Error> {
    for group in groups.iter().filter_map(|group| group.parse().ok()) {
        changes::record(tx, NetworkChange::Members(group))?;
    }
    Ok(())
}

/// Records that a port changed, so that its host, and hosts whose rules reference its security
/// groups, are updated.
pub(crate) fn record_change(tx: &mut Tx<'_>, port: &Port, before: &[String]) -> Result<(), Error> {
    let mut groups = port.record.texts("security_groups");
    if groups != before {
        changes::set_groups(tx, port.record.id, &groups)?;
        groups.extend(before.iter().cloned());
        groups.sort_unstable();
        groups.dedup();
    }
    members(tx, &groups)?;
    if port.server.is_some() {
        changes::record(tx, NetworkChange::Port(port.record.id))?;
    }
    Ok(())
}

fn mac_in_use(port: &Port) -> Refusal {
    refused(
        Kind::Conflict,
        "MacAddressInUse",
        format!(
            "Unable to complete operation for network {}. The mac address {} is in use.",
            port.network, port.mac
        ),
    )
}

fn random_mac() -> String {
    let [a, b, c]: [u8; 3] = rand::random();
    format!("fa:16:3e:{a:02x}:{b:02x}:{c:02x}")
}

fn kept(mut body: Body) -> Body {
    body.retain(|key, _| !COLUMNS.contains(&key.as_str()));
    body
}

pub(crate) fn delete(tx: &mut Tx<'_>, caller: &Caller, id: PortId) -> Result<(), Error> {
    let (port, network) = seen(tx, caller, id)?;
    targets::of_port(&port, &network).may(caller, "delete_port")?;
    if dhcp::serves(tx, &port)? {
        return dhcp::replace(tx, &network, &port, time::now());
    }
    routers::check_port(tx, &port)?;
    if let Some(server) = port.server {
        return Err(refused(Kind::Conflict, "PortInUse", format!(
            "Port {id} cannot be deleted: it is in use by server {server}. Remove it from the server \
             first."
        )).into());
    }
    Ok(rows::delete(tx, id, time::now())?)
}

/// The default port body.
pub(crate) fn defaults() -> Body {
    let of = |attribute: &Attribute| {
        Some((attribute.name.to_owned(), attribute.default.map(|default| default())?))
    };
    kept(ATTRIBUTES.iter().filter_map(of).collect())
}

/// A new port of the service itself, with this owner and device; it has no security groups.
pub(crate) fn serving(
    project: &str,
    network: NetworkId,
    owner: &str,
    device: &str,
    now: Timestamp,
) -> Port {
    let mut body = defaults();
    for (key, value) in [
        ("device_owner", json!(owner)),
        ("security_groups", json!([])),
        ("port_security_enabled", json!(false)),
    ] {
        body.insert(key.to_owned(), value);
    }
    Port {
        record: Record::new(project, body, now),
        network,
        mac: String::new(),
        device_id: device.to_owned(),
        host: None,
        vnic_type: VnicType::default(),
        server: None,
        made_for: None,
        ordinal: 0,
        arq: None,
        pci_slot: None,
        tag: None,
        addresses: Vec::new(),
    }
}
