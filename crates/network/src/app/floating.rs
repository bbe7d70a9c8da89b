//! Floating IPs: addresses on an external network, each associated with at most one fixed address of a port. The
//! router between the two translates them; the fixed address determines that router, and users never choose it.

use std::collections::HashMap;
use std::net::IpAddr;

use jiff::Timestamp;
use kilonova_access::Caller;
use kilonova_ids::{FloatingIpId, NetworkId, PortId, RouterId, SubnetId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Refusal, time};
use serde_json::{Value, json};

use super::addresses::{self, FixedIp};
use super::{Reach, dhcp, networks, ports as port_app, quotas, targets};
use crate::attributes::{
    Attribute, AttributeRules, empty, none, nothing, of_change, of_new, owner, permitted,
};
use crate::db::changes::{self, NetworkChange};
use crate::db::floating::{self as rows, Association, FloatingIp};
use crate::db::ports::{self, Port};
use crate::db::{routers, subnets as subnet_rows};
use crate::error::{bad, not_found, refused};
use crate::record::{Body, Record};
use crate::{Error, values};

pub(crate) const KIND: &str = "floatingip";

/// The `device_owner` of the port that reserves the address.
pub(crate) const OWNER: &str = "network:floatingip";

/// The attributes.
pub(crate) const ATTRIBUTES: &[Attribute] = &[
    Attribute::required("floating_network_id", values::uuid),
    Attribute::new("floating_ip_address", values::ip_or_none, none).fixed(),
    Attribute::new("subnet_id", values::uuid_or_none, none).fixed(),
    Attribute::new("port_id", values::uuid_or_none, none),
    Attribute::new("fixed_ip_address", values::ip_or_none, none),
    Attribute::new("description", values::long_text, empty),
    Attribute::new("dns_name", values::dns_name, empty).fixed(),
    Attribute::new("dns_domain", values::dns_name, empty).fixed(),
    Attribute::new("qos_policy_id", values::only_none, none),
    Attribute::new("tags", values::tags, nothing),
];

/// Attributes that are stored in columns of their own, or not at all.
const COLUMNS: &[&str] = &[
    "floating_network_id",
    "floating_ip_address",
    "subnet_id",
    "port_id",
    "fixed_ip_address",
    "qos_policy_id",
];

fn kept(mut body: Body) -> Body {
    body.retain(|key, _| !COLUMNS.contains(&key.as_str()));
    body
}

/// The floating IP, if visible to the caller.
pub(crate) fn seen(
    tx: &mut Tx<'_>,
    caller: &Caller,
    id: FloatingIpId,
) -> Result<FloatingIp, Error> {
    let floating =
        rows::find(tx, id)?.filter(|floating| visible(caller, Reach::of(caller), floating));
    Ok(floating.ok_or_else(|| not_found(KIND, id))?)
}

fn visible(caller: &Caller, reach: Reach<'_>, floating: &FloatingIp) -> bool {
    reach.covers(&floating.record.project)
        && targets::floating(floating).allows(caller, "get_floatingip")
}

pub(crate) fn create(
    tx: &mut Tx<'_>,
    caller: &Caller,
    sent: &Body,
    now: Timestamp,
) -> Result<FloatingIp, Error> {
    let project = owner(caller, sent)?;
    let body = of_new(ATTRIBUTES, sent)?;
    let mut set = body.clone();
    set.retain(|name, _| sent.contains_key(name));
    permitted(
        ATTRIBUTES,
        "create_floatingip",
        caller,
        &set,
        &targets::of_project(&project).sent(&body),
    )?;
    let text = body["floating_network_id"].as_str().unwrap_or_default();
    let id = parse_uuid_like::<NetworkId>(text).ok_or_else(|| not_found("network", text))?;
    let network = networks::seen(tx, caller, id)?;
    let internal = || bad(KIND, format!("Network {id} is not a valid external network"));
    networks::check_external(tx, &network, internal)?;
    quotas::check(tx, &project, quotas::FLOATING_IP, 1)?;
    let record = Record::new(&project, kept(body.clone()), now);
    let (own, address) = reserving_port(tx, id, &record.id.to_string(), &body, now)?;
    let mut floating = FloatingIp {
        record,
        network: id,
        reserving_port: own,
        address,
        fixed: None,
        placed: false,
    };
    floating.fixed = requested_association(tx, caller, &floating, &body)?;
    rows::insert(tx, &floating)?;
    note(tx, None, floating.fixed)?;
    found(tx, floating.record.id)
}

/// Creates the port that reserves the address: the requested one, or the next free one.
fn reserving_port(
    tx: &mut Tx<'_>,
    network: NetworkId,
    device: &str,
    body: &Body,
    now: Timestamp,
) -> Result<(PortId, IpAddr), Error> {
    let all = subnet_rows::of_network(tx, network)?;
    let ipv4 = |subnet: &subnet_rows::Subnet| subnet.record.body["ip_version"] == 4;
    if !all.iter().any(ipv4) {
        let why = format!("Network {network} does not contain any IPv4 subnet");
        return Err(bad(KIND, why).into());
    }
    let subnet = body["subnet_id"].as_str().and_then(parse_uuid_like::<SubnetId>);
    if let Some(subnet) = subnet
        && !ipv4(addresses::named(tx, network, &all, subnet)?)
    {
        let why = format!("Subnet {subnet} is not an IPv4 subnet of network {network}");
        return Err(bad(KIND, why).into());
    }
    let address = body["floating_ip_address"].as_str().and_then(|text| text.parse().ok());
    if address.is_some_and(|address: IpAddr| address.is_ipv6()) {
        return Err(bad(KIND, "A floating IP address is an IPv4 address").into());
    }
    // The port has no project, so that no quota counts it; the network's owner sees it.
    let port = port_app::serving("", network, OWNER, device, now);
    match address {
        Some(_) => {
            let requested = [FixedIp { subnet, address }];
            let port = port_app::insert(tx, port, true, Some(&requested))?;
            let address = port.addresses.first().map(|(_, address)| *address);
            let address = address.ok_or_else(|| bad(KIND, "The address is not available"))?;
            Ok((port.record.id, address))
        }
        None => {
            let port = port_app::insert(tx, port, true, Some(&[]))?;
            let id = port.record.id;
            let (_, address) = addresses::allocate_ipv4(tx, id, network, &all, subnet)?;
            Ok((id, address))
        }
    }
}

/// The association that a request asks for, if it names a port.
fn requested_association(
    tx: &mut Tx<'_>,
    caller: &Caller,
    floating: &FloatingIp,
    body: &Body,
) -> Result<Option<Association>, Error> {
    let asked = body.get("fixed_ip_address").and_then(Value::as_str);
    let asked: Option<IpAddr> = asked.and_then(|text| text.parse().ok());
    let port = body.get("port_id").and_then(Value::as_str).and_then(parse_uuid_like::<PortId>);
    let Some(id) = port else {
        return match asked {
            Some(_) => {
                Err(bad(KIND, "fixed_ip_address cannot be specified without a port_id").into())
            }
            None => Ok(None),
        };
    };
    let (port, _) = port_app::seen(tx, caller, id)?;
    // As in `_internal_fip_assoc_data` of `neutron/db/l3_db.py`.
    if port.record.project != floating.record.project && !caller.is_admin() {
        return Err(bad(
            KIND,
            format!(
                "Cannot process floating IP association with Port {id}, since that port is owned by a \
                 different project"
            ),
        )
        .into());
    }
    // As in `is_fip_serviced` of `neutron/common/utils.py`.
    if port.record.text("device_owner") == dhcp::OWNER {
        return Err(bad(KIND, format!("Port {id} is unable to be assigned a floating IP")).into());
    }
    let (subnet, address) = fixed_address(&port, asked)?;
    if let Some(other) = rows::of_fixed(tx, id, address, floating.network)?
        && other != floating.record.id
    {
        return Err(refused(Kind::Conflict, "FloatingIPPortAlreadyAssociated", format!(
            "Cannot associate floating IP {} ({}) with port {id} using fixed IP {address}, as that \
             fixed IP already has a floating IP on external network {}.",
            floating.address, floating.record.id, floating.network
        ))
        .into());
    }
    let router = router_between(tx, &port, subnet, floating.network)?;
    rows::touch_port(tx, id)?;
    routers::touch(tx, router)?;
    Ok(Some(Association { port: id, address, router }))
}

/// The named address of a port, or its only IPv4 address.
fn fixed_address(port: &Port, asked: Option<IpAddr>) -> Result<(SubnetId, IpAddr), Refusal> {
    let id = port.record.id;
    let ipv4: Vec<_> = port.addresses.iter().filter(|(_, ip)| ip.is_ipv4()).copied().collect();
    match (asked, ipv4.as_slice()) {
        (Some(asked), all) => all
            .iter()
            .find(|(_, ip)| *ip == asked)
            .copied()
            .ok_or_else(|| bad(KIND, format!("Port {id} does not have fixed ip {asked}"))),
        (None, []) => Err(bad(
            KIND,
            format!("Cannot add floating IP to port {id} that has no fixed IPv4 addresses"),
        )),
        (None, [only]) => Ok(*only),
        (None, _) => Err(bad(
            KIND,
            format!(
                "Port {id} has multiple fixed IPv4 addresses.  Must provide a specific IPv4 address when \
             assigning a floating IP"
            ),
        )),
    }
}

/// The router between a port's subnet and an external network. A router with the subnet's gateway address takes
/// precedence, because guests send their traffic to it.
fn router_between(
    tx: &mut Tx<'_>,
    port: &Port,
    subnet: SubnetId,
    external: NetworkId,
) -> Result<RouterId, Error> {
    let all = routers::between(tx, subnet, external)?;
    let gateway = subnet_rows::find(tx, subnet)?;
    let gateway = gateway.map(|subnet| subnet.record.text("gateway_ip").to_owned());
    let right = |(_, address): &&(RouterId, IpAddr)| gateway == Some(address.to_string());
    let router = all.iter().find(right).or(all.first());
    let router = router.map(|(router, _)| *router).ok_or_else(|| {
        refused(Kind::NotFound, "ExternalGatewayForFloatingIPNotFound", format!(
            "External network {external} is not reachable from subnet {subnet}.  Therefore, cannot \
             associate Port {} with a Floating IP.",
            port.record.id
        ))
    })?;
    Ok(router)
}

/// Records a change to the routers and the ports of the old and the new fixed address: hosts configure the routers, and
/// the guests' metadata contains the floating IPs.
fn note(
    tx: &mut Tx<'_>,
    before: Option<Association>,
    after: Option<Association>,
) -> Result<(), Error> {
    for end in [before, after].into_iter().flatten() {
        changes::record(tx, NetworkChange::Router(end.router))?;
        changes::record(tx, NetworkChange::Port(end.port))?;
    }
    Ok(())
}

fn found(tx: &mut Tx<'_>, id: FloatingIpId) -> Result<FloatingIp, Error> {
    Ok(rows::find(tx, id)?.ok_or_else(|| not_found(KIND, id))?)
}

pub(crate) fn update(
    tx: &mut Tx<'_>,
    caller: &Caller,
    id: FloatingIpId,
    sent: &Body,
    now: Timestamp,
) -> Result<FloatingIp, Error> {
    let mut floating = seen(tx, caller, id)?;
    targets::floating(&floating).may(caller, "update_floatingip")?;
    let set = of_change(ATTRIBUTES, sent)?;
    permitted(
        ATTRIBUTES,
        "update_floatingip",
        caller,
        &set,
        &targets::floating(&floating).sent(&set),
    )?;
    let before = floating.fixed;
    if sent.is_empty() {
        // As in `_check_and_get_fip_assoc` of `neutron/db/l3_db.py`, an empty update ends the association.
        floating.fixed = None;
    } else if set.contains_key("port_id") || set.contains_key("fixed_ip_address") {
        let mut wanted = set.clone();
        // Upstream refuses a fixed address without a port, also if the floating IP is associated.
        if !wanted.contains_key("port_id")
            && wanted.get("fixed_ip_address").is_none_or(Value::is_null)
            && let Some(end) = before
        {
            wanted.insert("port_id".into(), json!(end.port));
        }
        floating.fixed = requested_association(tx, caller, &floating, &wanted)?;
    }
    floating.record.change(kept(set), now);
    rows::update(tx, &floating)?;
    if before != floating.fixed {
        note(tx, before, floating.fixed)?;
    }
    found(tx, id)
}

pub(crate) fn delete(tx: &mut Tx<'_>, caller: &Caller, id: FloatingIpId) -> Result<(), Error> {
    let floating = seen(tx, caller, id)?;
    targets::floating(&floating).may(caller, "delete_floatingip")?;
    rows::delete(tx, id)?;
    ports::delete(tx, floating.reserving_port, time::now())?;
    note(tx, floating.fixed, None)
}

/// Views of the floating IPs visible to the caller.
pub(crate) fn views(tx: &mut Tx<'_>, caller: &Caller) -> Result<Vec<Body>, Error> {
    let reach = Reach::of(caller);
    let mut all = rows::list(tx, reach.viewer())?;
    all.retain(|floating| visible(caller, reach, floating));
    let ends = all.iter().filter_map(|floating| floating.fixed).map(|end| end.port);
    let ends = ports::by_ids(tx, ends)?;
    let ends: HashMap<PortId, Port> = ends.into_iter().map(|port| (port.record.id, port)).collect();
    let end = |floating: &FloatingIp| floating.fixed.and_then(|fixed| ends.get(&fixed.port));
    let rules = AttributeRules::of(caller, "get_floatingip");
    Ok(all.iter().map(|floating| view(floating, end(floating), &rules)).collect())
}

/// The view of one floating IP.
pub(crate) fn shown(
    tx: &mut Tx<'_>,
    floating: &FloatingIp,
    caller: &Caller,
) -> Result<Body, Error> {
    let end = match floating.fixed {
        Some(fixed) => ports::find(tx, fixed.port)?,
        None => None,
    };
    Ok(view(floating, end.as_ref(), &AttributeRules::of(caller, "get_floatingip")))
}

/// Active if a host translates the address.
pub(crate) fn status(floating: &FloatingIp) -> &'static str {
    if floating.fixed.is_some() && floating.placed { "ACTIVE" } else { "DOWN" }
}

fn view(floating: &FloatingIp, end: Option<&Port>, rules: &AttributeRules<'_>) -> Body {
    let mut view = floating.record.view();
    let fixed = floating.fixed;
    let details = end.map(|port| {
        let record = &port.record;
        json!({"name": record.text("name"), "network_id": port.network, "mac_address": port.mac,
            "admin_state_up": record.flag("admin_state_up"),
            "status": if port.host.is_some() { "ACTIVE" } else { "DOWN" },
            "device_id": port.device_id, "device_owner": record.text("device_owner")})
    });
    for (key, value) in [
        ("floating_network_id", json!(floating.network)),
        ("floating_ip_address", json!(floating.address)),
        ("port_id", json!(fixed.map(|fixed| fixed.port))),
        ("fixed_ip_address", json!(fixed.map(|fixed| fixed.address))),
        ("router_id", json!(fixed.map(|fixed| fixed.router))),
        ("status", json!(status(floating))),
        ("port_details", json!(details)),
        ("qos_policy_id", Value::Null),
    ] {
        view.insert(key.to_owned(), value);
    }
    rules.hide(&mut view, &targets::floating(floating));
    view
}
