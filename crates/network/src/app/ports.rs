//! Ports: what connects a guest to a network.

use std::net::IpAddr;

use kilonova_ids::{NetworkId, PortId, SecurityGroupId, SubnetId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::{Context, Fault};
use serde_json::{Value, json};

use super::addresses::{self, FixedIp};
use super::{dhcp, groups, networks, quotas, viewer};
use crate::attributes::{Attribute, empty, none, nothing, of_change, of_new, owner, yes};
use crate::db::changes::{self, Change};
use crate::db::networks::Network;
use crate::db::ports::{self as rows, Port};
use crate::error::{not_allowed, not_found, refused};
use crate::record::{Body, Record};
use crate::{Error, Options, values};

pub(crate) const KIND: &str = "port";

/// Hardware addresses that are tried before a port is refused.
const TRIES: usize = 16;

/// What may be set.
pub(crate) const ATTRIBUTES: &[Attribute] = &[
    Attribute::required("network_id", values::uuid),
    Attribute::new("name", values::text, empty),
    Attribute::new("description", values::text, empty),
    Attribute::new("admin_state_up", values::flag, yes),
    Attribute::new("mac_address", values::mac, none),
    Attribute::new("fixed_ips", values::fixed_ips, none),
    Attribute::new("device_id", values::text, empty),
    Attribute::new("device_owner", values::text, empty),
    Attribute::new("security_groups", values::uuids, none),
    Attribute::new("allowed_address_pairs", values::pairs, nothing),
    Attribute::new("extra_dhcp_opts", values::only_empty, nothing),
    Attribute::new("port_security_enabled", values::flag, yes),
    Attribute::new("binding:vnic_type", values::vnic_type, || json!("normal")),
    Attribute::new("binding:host_id", values::text_or_none, empty).admin(),
    Attribute::new("binding:profile", values::object, || json!({})).admin(),
    Attribute::new("device_profile", values::text_or_none, none).fixed(),
    Attribute::new("dns_name", values::dns_name, empty),
    Attribute::new("dns_domain", values::dns_name, empty),
    Attribute::new("numa_affinity_policy", values::only_none, none),
    Attribute::new("qos_policy_id", values::only_none, none),
    Attribute::new("propagate_uplink_status", values::flag, yes),
    Attribute::new("hints", values::only_none, none),
    Attribute::new("tags", values::tags, nothing),
];

/// What only administrators see.
const HIDDEN: &[&str] =
    &["binding:host_id", "binding:profile", "binding:vif_type", "binding:vif_details"];

/// Attributes that are columns and not in the body.
const APART: &[&str] = &["network_id", "mac_address", "fixed_ips", "device_id", "binding:host_id"];

pub(crate) fn seen(tx: &mut Tx<'_>, context: &Context, id: PortId) -> Result<Port, Error> {
    let missing = || not_found(KIND, id);
    let port = rows::find(tx, id)?.ok_or_else(missing)?;
    if context.may_see(&port.record.project) {
        return Ok(port);
    }
    let network = networks::seen(tx, context, port.network).map_err(|_| missing())?;
    if context.may_see(&network.project) { Ok(port) } else { Err(missing().into()) }
}

fn fixed_ips(body: &Body) -> Option<Vec<FixedIp>> {
    let list = body.get("fixed_ips")?.as_array()?;
    let read = |value: &Value| FixedIp {
        subnet: value["subnet_id"].as_str().and_then(parse_uuid_like::<SubnetId>),
        address: value["ip_address"].as_str().and_then(|text| text.parse::<IpAddr>().ok()),
    };
    Some(list.iter().map(read).collect())
}

pub(crate) fn create(
    tx: &mut Tx<'_>,
    context: &Context,
    sent: &Body,
    now: i64,
) -> Result<Port, Error> {
    let project = owner(context, sent)?;
    let mut body = of_new(ATTRIBUTES, KIND, context, sent)?;
    let id = parse_uuid_like::<NetworkId>(body["network_id"].as_str().unwrap_or_default());
    let id = id.ok_or_else(|| not_found("network", &body["network_id"]))?;
    let network = networks::seen(tx, context, id)?;
    for special in ["mac_address", "fixed_ips", "allowed_address_pairs", "port_security_enabled"] {
        if sent.get(special).is_some_and(|value| !value.is_null()) {
            on_own_network(context, &network, &format!("create_port:{special}"))?;
        }
    }
    quotas::check(tx, &project, quotas::PORT, 1)?;
    if !sent.contains_key("port_security_enabled") {
        body.insert("port_security_enabled".into(), json!(network.flag("port_security_enabled")));
    }
    secure(tx, context, &project, sent, &mut body, now)?;
    let asked = fixed_ips(&body);
    let mac = body["mac_address"].as_str().map(str::to_owned);
    let text = |body: &Body, key: &str| body[key].as_str().unwrap_or_default().to_owned();
    let port = Port {
        network: id,
        mac: mac.clone().unwrap_or_default(),
        device_id: text(&body, "device_id"),
        host: text(&body, "binding:host_id"),
        server: None,
        made_for: None,
        ordinal: 0,
        arq: None,
        pci_slot: None,
        tag: None,
        addresses: Vec::new(),
        record: Record::new(&project, kept(body), now),
    };
    insert(tx, port, mac.is_none(), asked.as_deref())
}

/// Adds a port, with a hardware address of ours where it brings none, and with its addresses.
pub(crate) fn insert(
    tx: &mut Tx<'_>,
    mut port: Port,
    any_mac: bool,
    asked: Option<&[FixedIp]>,
) -> Result<Port, Error> {
    for _ in 0..TRIES {
        if any_mac {
            port.mac = random_mac();
        }
        if rows::insert(tx, &port)? {
            port.addresses = addresses::give(tx, port.record.id, port.network, asked)?;
            let groups = port.record.texts("security_groups");
            changes::add_groups(tx, port.record.id, &groups)?;
            members(tx, &groups)?;
            return Ok(port);
        }
        if !any_mac {
            break;
        }
    }
    Err(mac_in_use(&port).into())
}

/// The members of groups have changed.
fn members(tx: &mut Tx<'_>, groups: &[String]) -> Result<(), Error> {
    for group in groups.iter().filter_map(|group| group.parse().ok()) {
        changes::note(tx, Change::Members(group))?;
    }
    Ok(())
}

/// What is set on a port has changed: hosts are told, also those of who names its groups.
pub(crate) fn told(tx: &mut Tx<'_>, port: &Port, before: &[String]) -> Result<(), Error> {
    let mut groups = port.record.texts("security_groups");
    if groups != before {
        changes::set_groups(tx, port.record.id, &groups)?;
        groups.extend(before.iter().cloned());
        groups.sort_unstable();
        groups.dedup();
    }
    members(tx, &groups)?;
    if port.server.is_some() {
        changes::note(tx, Change::Port(port.record.id))?;
    }
    Ok(())
}

fn mac_in_use(port: &Port) -> Fault {
    refused(
        409,
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
    body.retain(|key, _| !APART.contains(&key.as_str()));
    body
}

/// What could harm others on the network is for its owner.
fn on_own_network(context: &Context, network: &Network, rule: &str) -> Result<(), Fault> {
    if context.may_see(&network.project) { Ok(()) } else { Err(not_allowed(rule)) }
}

/// The groups of a port: those that are named, or the project's default; none without security.
fn secure(
    tx: &mut Tx<'_>,
    context: &Context,
    project: &str,
    sent: &Body,
    body: &mut Body,
    now: i64,
) -> Result<(), Error> {
    let secure = body["port_security_enabled"] == true;
    let named = sent.get("security_groups").is_some_and(|value| !value.is_null());
    let has = body["security_groups"].as_array().is_some_and(|groups| !groups.is_empty());
    let pairs = body["allowed_address_pairs"].as_array().is_some_and(|pairs| !pairs.is_empty());
    if !secure {
        if has && named {
            return Err(refused(
                409,
                "PortSecurityAndIPRequiredForSecurityGroups",
                "Port security must be enabled and port must have an IP address in order to use \
                 security groups.",
            )
            .into());
        }
        if pairs {
            return Err(refused(
                409,
                "AddressPairAndPortSecurityRequired",
                "Port Security must be enabled in order to have allowed address pairs on a port.",
            )
            .into());
        }
        body.insert("security_groups".into(), json!([]));
        return Ok(());
    }
    if named {
        for id in body["security_groups"].as_array().into_iter().flatten() {
            let text = id.as_str().unwrap_or_default();
            let id = parse_uuid_like::<SecurityGroupId>(text);
            let id = id.ok_or_else(|| not_found("security_group", text))?;
            groups::usable(tx, context, project, id)?;
        }
    } else {
        let default = groups::default_of(tx, project, now)?;
        body.insert("security_groups".into(), json!([default]));
    }
    Ok(())
}

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

pub(crate) fn delete(tx: &mut Tx<'_>, context: &Context, id: PortId) -> Result<(), Error> {
    let port = seen(tx, context, id)?;
    dhcp::check(&port)?;
    if let Some(server) = port.server {
        return Err(refused(409, "PortInUse", format!(
            "Port {id} cannot be deleted: it is in use by server {server}. Remove it from the server \
             first."
        )).into());
    }
    Ok(rows::delete(tx, id)?)
}

/// The ports that the caller sees, as they are shown.
pub(crate) fn views(
    tx: &mut Tx<'_>,
    options: &Options,
    context: &Context,
    device: Option<String>,
    network: Option<String>,
) -> Result<Vec<Body>, Error> {
    let wanted = rows::Wanted { viewer: viewer(context), device, network };
    let ports = rows::list(tx, &wanted)?;
    Ok(ports.iter().map(|port| view(port, options, context)).collect())
}

/// A port as it is shown.
pub(crate) fn view(port: &Port, options: &Options, context: &Context) -> Body {
    let mut view = port.record.view();
    let ips = port.addresses.iter();
    let ips: Vec<Value> =
        ips.map(|(subnet, ip)| json!({"subnet_id": subnet, "ip_address": ip})).collect();
    let bound = !port.host.is_empty();
    let answers = port.record.text("device_owner") == dhcp::OWNER;
    let special = port.record.text("binding:vnic_type") != "normal";
    let vif = if !bound {
        "unbound"
    } else if special {
        "hostdev_physical"
    } else {
        "bridge"
    };
    let details =
        if bound { json!({"port_filter": !special, "connectivity": "l2"}) } else { json!({}) };
    for (key, value) in [
        ("network_id", json!(port.network)),
        ("mac_address", json!(port.mac)),
        ("fixed_ips", json!(ips)),
        ("device_id", json!(port.device_id)),
        ("status", json!(if bound || answers { "ACTIVE" } else { "DOWN" })),
        ("ip_allocation", json!(if ips.is_empty() { "none" } else { "immediate" })),
        ("dns_assignment", names(port, options)),
        ("resource_request", Value::Null),
        ("qos_network_policy_id", Value::Null),
        ("binding:host_id", json!(port.host)),
        ("binding:vif_type", json!(vif)),
        ("binding:vif_details", details),
        ("binding:profile", profile(port)),
    ] {
        view.insert(key.to_owned(), value);
    }
    if !context.is_admin() {
        view.retain(|key, _| !HIDDEN.contains(&key.as_str()));
    }
    view
}

/// What is known of the port's device, beside what was set.
fn profile(port: &Port) -> Value {
    let mut profile = port.record.body.get("binding:profile").cloned().unwrap_or(json!({}));
    if let (Some(arq), Some(slot)) = (port.arq, &port.pci_slot) {
        profile["arq_uuid"] = json!(arq);
        profile["pci_slot"] = json!(slot);
    }
    profile
}

fn names(port: &Port, options: &Options) -> Value {
    let name = port.record.text("dns_name");
    let of = |(_, ip): &(SubnetId, IpAddr)| {
        let host = if name.is_empty() {
            format!("host-{}", ip.to_string().replace(['.', ':'], "-"))
        } else {
            name.to_owned()
        };
        json!({"hostname": host, "ip_address": ip, "fqdn": format!("{host}.{}", options.dns_domain)})
    };
    port.addresses.iter().map(of).collect()
}

/// The body of a port of which nothing is said.
pub(crate) fn defaults() -> Body {
    let of = |attribute: &Attribute| {
        Some((attribute.name.to_owned(), attribute.default.map(|default| default())?))
    };
    kept(ATTRIBUTES.iter().filter_map(of).collect())
}
