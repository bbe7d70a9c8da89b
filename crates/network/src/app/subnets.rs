//! Subnets: a prefix on a network and its allocation pools.

use std::net::IpAddr;

use jiff::Timestamp;
use kilonova_access::Caller;
use kilonova_ids::{NetworkId, SubnetId, SubnetKind, parse_uuid_like};
use kilonova_node_api::SixMode;
use kilonova_store::{Error as StoreError, Tx};
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;
use serde_json::{Value, json};

use super::{Reach, dhcp, networks, quotas, routers, targets};
use crate::address::{self, Cidr, Range, number};
use crate::attributes::{
    Attribute, AttributeRules, On, empty, none, nothing, of_change, of_new, owner, permitted, yes,
};
use crate::db::changes::{self, NetworkChange};
use crate::db::networks::Network;
use crate::db::ports;
use crate::db::subnets::{self as rows, Subnet};
use crate::error::{bad, invalid, not_found, refused};
use crate::record::{Body, Record};
use crate::{Error, values};

pub(crate) const KIND: &str = "subnet";

/// The attributes.
pub(crate) const ATTRIBUTES: &[Attribute] = &[
    Attribute::required("network_id", values::uuid),
    Attribute::required("ip_version", values::version),
    Attribute::required("cidr", values::cidr),
    Attribute::new("name", values::text, empty),
    Attribute::new("description", values::long_text, empty),
    Attribute { name: "gateway_ip", check: values::ip_or_none, on: On::Both, default: Some(none) },
    Attribute::new("allocation_pools", values::pools, none),
    Attribute::new("dns_nameservers", values::name_servers, nothing),
    Attribute::new("host_routes", values::host_routes, nothing),
    Attribute::new("enable_dhcp", values::flag, yes),
    Attribute::new("ipv6_ra_mode", values::ipv6_mode, none).fixed(),
    Attribute::new("ipv6_address_mode", values::ipv6_mode, none).fixed(),
    Attribute::new("subnetpool_id", values::only_none, none).fixed(),
    Attribute::new("prefixlen", values::only_none, none).fixed(),
    Attribute::new("use_default_subnetpool", values::flag_or_none, none).fixed(),
    Attribute::new("segment_id", values::only_none, none),
    Attribute::new("service_types", values::only_empty, nothing),
    Attribute::new("dns_publish_fixed_ip", values::flag, crate::attributes::no),
    Attribute::new("tags", values::tags, nothing),
];

/// The prefix of a stored subnet.
pub(crate) fn cidr(record: &Record<SubnetKind>) -> Result<Cidr, Error> {
    let text = record.text("cidr");
    Ok(Cidr::parse(text).ok_or_else(|| StoreError::Shape(format!("cidr {text}")))?)
}

/// The allocation pools of a stored subnet.
pub(crate) fn pools(record: &Record<SubnetKind>) -> Result<Vec<Range>, Error> {
    let pools = record.body.get("allocation_pools").and_then(Value::as_array);
    let range = |pool: &Value| -> Result<Range, Error> {
        let end = |key: &str| pool[key].as_str().and_then(|text| text.parse::<IpAddr>().ok());
        match (end("start"), end("end")) {
            (Some(first), Some(last)) => Ok(Range { first: number(first), last: number(last) }),
            _ => Err(StoreError::Shape(format!("pool {pool}")).into()),
        }
    };
    pools.into_iter().flatten().map(range).collect()
}

/// True if the MAC address of a port determines its address on the subnet.
pub(crate) fn is_automatic(record: &Record<SubnetKind>) -> bool {
    let automatic = [SixMode::Slaac, SixMode::Stateless].map(SixMode::as_str);
    ["ipv6_ra_mode", "ipv6_address_mode"].iter().any(|key| automatic.contains(&record.text(key)))
}

/// Validates the modes of an IPv6 subnet together.
fn check_modes(prefix: &Cidr, record: &Record<SubnetKind>) -> Result<(), Refusal> {
    let (ra, address) = (record.text("ipv6_ra_mode"), record.text("ipv6_address_mode"));
    let set = [("ipv6_ra_mode", ra), ("ipv6_address_mode", address)];
    let Some((first, _)) = set.iter().find(|(_, mode)| !mode.is_empty()) else { return Ok(()) };
    if prefix.version() == 4 {
        return Err(invalid(format!("{first} is not valid when ip_version is 4")));
    }
    if !record.flag("enable_dhcp") {
        return Err(bad(
            "subnets",
            "ipv6_ra_mode or ipv6_address_mode cannot be set when enable_dhcp is set to False",
        ));
    }
    if !ra.is_empty() && !address.is_empty() && ra != address {
        return Err(invalid(format!(
            "ipv6_ra_mode set to '{ra}' with ipv6_address_mode set to '{address}' is not valid. If \
             both attributes are set, they must be the same value"
        )));
    }
    if is_automatic(record) && prefix.prefix != 64 {
        return Err(invalid(format!(
            "Invalid CIDR {prefix} for IPv6 address mode. OpenStack uses the EUI-64 address format, \
             which requires the prefix to be /64"
        )));
    }
    Ok(())
}

/// A subnet and its network, if visible to the caller.
pub(crate) fn seen(
    tx: &mut Tx<'_>,
    caller: &Caller,
    id: SubnetId,
) -> Result<(Subnet, Network), Error> {
    let missing = || not_found(KIND, id);
    let subnet = rows::find(tx, id)?.ok_or_else(missing)?;
    let network = networks::of(tx, subnet.network)?;
    if visible(caller, Reach::of(caller), &subnet, &network) {
        Ok((subnet, network))
    } else {
        Err(missing().into())
    }
}

fn visible(caller: &Caller, reach: Reach<'_>, subnet: &Subnet, network: &Network) -> bool {
    let reached = reach.covers(&subnet.record.project)
        || reach.covers(&network.project)
        || network.flag("shared")
        || network.flag("router:external");
    reached && targets::subnet(subnet, network).allows(caller, "get_subnet")
}

pub(crate) fn create(
    tx: &mut Tx<'_>,
    caller: &Caller,
    sent: &Body,
    now: Timestamp,
) -> Result<(Subnet, Network), Error> {
    let project = owner(caller, sent)?;
    let mut body = of_new(ATTRIBUTES, sent)?;
    let id = parse_uuid_like::<NetworkId>(body["network_id"].as_str().unwrap_or_default());
    let id = id.ok_or_else(|| not_found("network", &body["network_id"]))?;
    let mut network = networks::seen(tx, caller, id)?;
    let mut set = body.clone();
    set.retain(|name, _| sent.contains_key(name));
    let target = targets::on_network(&project, &network).sent(&body);
    permitted(ATTRIBUTES, "create_subnet", caller, &set, &target)?;
    quotas::check(tx, &project, quotas::SUBNET, 1)?;
    for gone in ["prefixlen", "use_default_subnetpool", "network_id"] {
        body.remove(gone);
    }
    let prefix = Cidr::parse(body["cidr"].as_str().unwrap_or_default())
        .ok_or_else(|| invalid("the cidr is not a prefix"))?;
    if body["ip_version"].as_i64() != Some(prefix.version()) {
        return Err(invalid(format!(
            "The ip_version '{}' of the subnet does not match that of its cidr {prefix}",
            body["ip_version"]
        ))
        .into());
    }
    if !sent.contains_key("gateway_ip") {
        let first = prefix.usable().first;
        body.insert("gateway_ip".into(), json!(address::address(prefix.base(), first)));
    }
    check(&prefix, &mut body)?;
    for other in rows::of_network(tx, network.id)? {
        if cidr(&other.record)?.overlaps(&prefix) {
            return Err(invalid(format!(
                "Requested subnet with cidr: {prefix} for network: {id} overlaps with another subnet"
            ))
            .into());
        }
    }
    // This also serializes concurrent creations of subnets on one network, so that their prefixes cannot overlap.
    revise(tx, &mut network, now)?;
    let record = Record::new(&project, body, now);
    check_modes(&prefix, &record)?;
    let subnet = Subnet { record, network: id, cursor: address::key(0) };
    rows::insert(tx, &subnet)?;
    if is_automatic(&subnet.record) {
        super::ports::add_automatic(tx, &subnet, &prefix)?;
        ports::revise_on_subnet(tx, subnet.record.id, now)?;
        changes::record(tx, NetworkChange::Network(id))?;
    }
    dhcp::reconcile(tx, &network, now)?;
    Ok((subnet, network))
}

/// A network changes with its subnets, as in `revises_on_change` of `Subnet` in `neutron/db/models_v2.py`.
fn revise(tx: &mut Tx<'_>, network: &mut Network, now: Timestamp) -> Result<(), Error> {
    network.change(Body::new(), now);
    Ok(crate::db::networks::update(tx, network)?)
}

/// Validates the gateway, the name servers and the pools together; derives the pools if none are requested.
fn check(prefix: &Cidr, body: &mut Body) -> Result<(), Refusal> {
    let like = prefix.base();
    let family = |ip: &IpAddr| ip.is_ipv4() == like.is_ipv4();
    let ip = |value: &Value| value.as_str().and_then(|text| text.parse::<IpAddr>().ok());
    let gateway = ip(&body["gateway_ip"]);
    if let Some(gateway) = gateway
        && (!family(&gateway)
            || (prefix.contains(gateway) && !prefix.usable().contains(number(gateway))))
    {
        return Err(invalid(format!("Gateway {gateway} is not valid on subnet {prefix}")));
    }
    for server in body["dns_nameservers"].as_array().into_iter().flatten().filter_map(ip) {
        if !family(&server) {
            return Err(invalid(format!(
                "dns_nameserver '{server}' does not match the ip_version '{}'",
                prefix.version()
            )));
        }
    }
    let ranges = match body["allocation_pools"].as_array() {
        None => around(prefix.usable(), gateway.map(number)),
        Some(pools) => {
            let mut ranges = Vec::new();
            for pool in pools {
                ranges.push(one_pool(prefix, pool, (ip(&pool["start"]), ip(&pool["end"])))?);
            }
            ranges
        }
    };
    for (at, range) in ranges.iter().enumerate() {
        if let Some(gateway) = gateway.filter(|gateway| range.contains(number(*gateway))) {
            return Err(refused(
                Kind::Conflict,
                "GatewayConflictWithAllocationPools",
                format!(
                    "Gateway ip {gateway} conflicts with allocation pool {}.",
                    named(*range, like)
                ),
            ));
        }
        if let Some(other) = ranges[..at].iter().find(|other| other.overlaps(*range)) {
            return Err(refused(
                Kind::Conflict,
                "OverlappingAllocationPools",
                format!(
                    "Found overlapping allocation pools: {} {} for subnet {prefix}.",
                    named(*other, like),
                    named(*range, like)
                ),
            ));
        }
    }
    let views: Vec<Value> = ranges.into_iter().map(|range| range.view(like)).collect();
    body.insert("allocation_pools".into(), views.into());
    Ok(())
}

fn named(range: Range, like: IpAddr) -> String {
    format!("{}-{}", address::address(like, range.first), address::address(like, range.last))
}

fn one_pool(
    prefix: &Cidr,
    pool: &Value,
    ends: (Option<IpAddr>, Option<IpAddr>),
) -> Result<Range, Refusal> {
    let (Some(first), Some(last)) = ends else {
        return Err(invalid(format!("the allocation pool {pool} lacks start or end")));
    };
    let text = format!("{first}-{last}");
    if number(first) > number(last) || first.is_ipv4() != last.is_ipv4() {
        let message = format!("The allocation pool {text} is not valid.");
        return Err(refused(Kind::BadRequest, "InvalidAllocationPool", message));
    }
    let inside = |ip: IpAddr| prefix.contains(ip) && prefix.usable().contains(number(ip));
    if !inside(first) || !inside(last) {
        let message = format!("The allocation pool {text} spans beyond the subnet cidr {prefix}.");
        return Err(refused(Kind::BadRequest, "OutOfBoundsAllocationPool", message));
    }
    Ok(Range { first: number(first), last: number(last) })
}

/// The ranges before and after the gateway.
fn around(all: Range, gateway: Option<u128>) -> Vec<Range> {
    match gateway.filter(|gateway| all.contains(*gateway)) {
        None => vec![all],
        Some(gateway) => {
            let before =
                (gateway > all.first).then(|| Range { first: all.first, last: gateway - 1 });
            let after = (gateway < all.last).then(|| Range { first: gateway + 1, last: all.last });
            before.into_iter().chain(after).collect()
        }
    }
}

pub(crate) fn update(
    tx: &mut Tx<'_>,
    caller: &Caller,
    id: SubnetId,
    sent: &Body,
    now: Timestamp,
) -> Result<(Subnet, Network), Error> {
    let (mut subnet, mut network) = seen(tx, caller, id)?;
    targets::subnet(&subnet, &network).may(caller, "update_subnet")?;
    let set = of_change(ATTRIBUTES, sent)?;
    permitted(
        ATTRIBUTES,
        "update_subnet",
        caller,
        &set,
        &targets::subnet(&subnet, &network).sent(&set),
    )?;
    routers::check_gateway(tx, &subnet, &set)?;
    subnet.record.change(set, now);
    let prefix = cidr(&subnet.record)?;
    check(&prefix, &mut subnet.record.body)?;
    check_modes(&prefix, &subnet.record)?;
    rows::update(tx, &subnet.record)?;
    revise(tx, &mut network, now)?;
    dhcp::reconcile(tx, &network, now)?;
    changes::record(tx, NetworkChange::Network(subnet.network))?;
    Ok((subnet, network))
}

pub(crate) fn delete(
    tx: &mut Tx<'_>,
    caller: &Caller,
    id: SubnetId,
    now: Timestamp,
) -> Result<(), Error> {
    let (subnet, mut network) = seen(tx, caller, id)?;
    targets::subnet(&subnet, &network).may(caller, "delete_subnet")?;
    dhcp::release_address(tx, &subnet, now)?;
    if is_automatic(&subnet.record) && crate::db::routers::on_subnet(tx, id)?.is_empty() {
        // These addresses were assigned automatically, so they may be released.
        ports::revise_on_subnet(tx, id, now)?;
        ports::release_subnet(tx, id)?;
        changes::record(tx, NetworkChange::Network(subnet.network))?;
    }
    if ports::on_subnet(tx, subnet.record.id)? {
        return Err(refused(Kind::Conflict, "SubnetInUse", format!(
            "Unable to complete operation on subnet {id}: One or more ports have an IP allocation \
             from this subnet."
        )).into());
    }
    rows::delete(tx, id)?;
    revise(tx, &mut network, now)?;
    dhcp::reconcile(tx, &network, now)
}

pub(crate) fn views(tx: &mut Tx<'_>, caller: &Caller) -> Result<Vec<Body>, Error> {
    let mut networks = networks::Cache::default();
    let mut views = Vec::new();
    let reach = Reach::of(caller);
    let rules = AttributeRules::of(caller, "get_subnet");
    for subnet in rows::list(tx, reach.viewer())? {
        let network = networks.get(tx, subnet.network)?;
        if visible(caller, reach, &subnet, network) {
            let mut view = view_by(&subnet, network, &rules);
            // This key is only for filters; see `Collection::hidden`.
            view.insert("shared".into(), json!(network.flag("shared")));
            views.push(view);
        }
    }
    Ok(views)
}

pub(crate) fn view(subnet: &Subnet, network: &Network, caller: &Caller) -> Body {
    view_by(subnet, network, &AttributeRules::of(caller, "get_subnet"))
}

fn view_by(subnet: &Subnet, network: &Network, rules: &AttributeRules<'_>) -> Body {
    let mut view = subnet.record.view();
    view.insert("network_id".into(), json!(subnet.network));
    view.insert("router:external".into(), json!(network.flag("router:external")));
    rules.hide(&mut view, &targets::subnet(subnet, network));
    view
}
