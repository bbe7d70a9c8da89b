//! Networks: flat or VLAN, on a physical network that hosts are attached to.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use jiff::Timestamp;
use kilonova_access::Caller;
use kilonova_ids::NetworkId;
use kilonova_store::Tx;
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;
use serde_json::{Value, json};

use super::targets::{self, Target};
use super::{Reach, dhcp, quotas, zones};
use crate::attributes::{
    Attribute, AttributeRules, empty, no, none, nothing, of_change, of_new, owner, permitted, yes,
};
use crate::db::changes::{self, NetworkChange};
use crate::db::networks::{self as rows, Network};
use crate::db::{ports, routers, subnets};
use crate::error::{invalid, not_found, refused};
use crate::record::{Body, Record};
use crate::{Error, NetworkOptions, values};

pub(crate) const KIND: &str = "network";

/// The attributes.
pub(crate) const ATTRIBUTES: &[Attribute] = &[
    Attribute::new("name", values::text, empty),
    Attribute::new("description", values::long_text, empty),
    Attribute::new("admin_state_up", values::flag, yes),
    Attribute::new("shared", values::flag, no),
    Attribute::new("mtu", values::mtu, || json!(1500)),
    Attribute::new("port_security_enabled", values::flag, yes),
    Attribute::new("router:external", values::flag, no),
    Attribute::new("is_default", values::flag, no),
    Attribute::new("dns_domain", values::dns_name, empty),
    Attribute::new("provider:network_type", values::network_type, none),
    Attribute::new("provider:physical_network", values::text_or_none, none),
    Attribute::new("provider:segmentation_id", values::vlan, none),
    Attribute::new("segments", values::segments, none).fixed(),
    Attribute::new("availability_zone_hints", values::zone_hints, nothing).fixed(),
    Attribute::new("vlan_transparent", values::only_none, none).fixed(),
    Attribute::new("qos_policy_id", values::only_none, none),
    Attribute::new("tags", values::tags, nothing),
];

/// The network, if visible to the caller.
pub(crate) fn seen(tx: &mut Tx<'_>, caller: &Caller, id: NetworkId) -> Result<Network, Error> {
    let network = rows::find(tx, id)?
        .filter(|network| visible(caller, Reach::of(caller), network, &targets::network(network)));
    Ok(network.ok_or_else(|| not_found(KIND, id))?)
}

fn visible(caller: &Caller, reach: Reach<'_>, network: &Network, target: &Target<'_>) -> bool {
    let reached =
        reach.covers(&network.project) || network.flag("shared") || network.flag("router:external");
    reached && target.allows(caller, "get_network")
}

/// The network of a resource, unchecked: the caller checks the visibility of the resource.
pub(crate) fn of(tx: &mut Tx<'_>, id: NetworkId) -> Result<Network, Error> {
    Ok(rows::find(tx, id)?.ok_or_else(|| not_found(KIND, id))?)
}

/// Refuses a network that is not external, and makes the transaction conflict with changes to the network.
pub(crate) fn check_external(
    tx: &mut Tx<'_>,
    network: &Network,
    refusal: impl FnOnce() -> Refusal,
) -> Result<(), Error> {
    if !network.flag("router:external") {
        return Err(refusal().into());
    }
    Ok(rows::touch(tx, network.id)?)
}

/// The networks of a list's resources, each read once.
#[derive(Default)]
pub(crate) struct Cache(HashMap<NetworkId, Network>);

impl Cache {
    pub fn get(&mut self, tx: &mut Tx<'_>, id: NetworkId) -> Result<&Network, Error> {
        Ok(match self.0.entry(id) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(free) => free.insert(of(tx, id)?),
        })
    }
}

pub(crate) fn create(
    tx: &mut Tx<'_>,
    options: &NetworkOptions,
    caller: &Caller,
    sent: &Body,
    now: Timestamp,
) -> Result<Network, Error> {
    let project = owner(caller, sent)?;
    let mut body = of_new(ATTRIBUTES, sent)?;
    let mut set = body.clone();
    set.retain(|name, _| sent.contains_key(name));
    permitted(
        ATTRIBUTES,
        "create_network",
        caller,
        &set,
        &targets::of_project(&project).sent(&body),
    )?;
    if !sent.contains_key("mtu") {
        body.insert("mtu".into(), json!(options.mtu));
    }
    check_mtu(options, &body)?;
    quotas::check(tx, &project, quotas::NETWORK, 1)?;
    zones::check_hints(&body)?;
    take_segments(&mut body)?;
    let segment = segment(tx, options, &mut body)?;
    let network = Record::new(&project, body, now);
    rows::insert(tx, &network, &segment).map_err(|error| match error {
        kilonova_store::Error::Unique(_) => in_use(&network).into(),
        other => Error::Store(other),
    })?;
    Ok(network)
}

/// Refuses an MTU that the physical networks do not support (`_get_network_mtu` of `neutron/plugins/ml2/plugin.py`).
fn check_mtu(options: &NetworkOptions, body: &Body) -> Result<(), Refusal> {
    let most = u64::from(options.mtu);
    match body.get("mtu").and_then(Value::as_u64) {
        Some(mtu) if mtu > most => {
            Err(invalid(format!("Requested MTU is too big, maximum is {most}")))
        }
        _ => Ok(()),
    }
}

/// Turns the only element of `segments` into the equivalent provider attributes (`_process_provider_create` of
/// `neutron/plugins/ml2/managers.py`).
fn take_segments(body: &mut Body) -> Result<(), Refusal> {
    let Some(Value::Array(segments)) = body.remove("segments") else { return Ok(()) };
    let is_set = |key: &&str| body.get(*key).is_some_and(|value| !value.is_null());
    if values::PROVIDER.iter().any(is_set) {
        return Err(refused(
            Kind::BadRequest,
            "SegmentsSetInConjunctionWithProviders",
            "Segments and provider values cannot both be set.",
        ));
    }
    let mut segments = segments.into_iter();
    let Some(Value::Object(only)) = segments.next() else { return Ok(()) };
    if segments.next().is_some() {
        return Err(invalid("A network has exactly one segment here"));
    }
    if only.get("provider:network_type").is_none_or(Value::is_null) {
        return Err(invalid("network_type required"));
    }
    body.extend(only);
    Ok(())
}

/// Reserves the requested segment, or a free VLAN.
fn segment(tx: &mut Tx<'_>, options: &NetworkOptions, body: &mut Body) -> Result<String, Error> {
    let physical = body["provider:physical_network"].as_str().map(str::to_owned);
    let vlan = body["provider:segmentation_id"].as_i64();
    match (body["provider:network_type"].as_str(), physical, vlan) {
        (None, None, None) => {}
        (None, ..) => return Err(invalid("network_type required").into()),
        (Some(_), Some(name), _) if name.is_empty() || name.contains([':', '%']) => {
            return Err(invalid("physical_network is not a valid name").into());
        }
        (Some("flat"), Some(name), vlan) => {
            let known = options.flat_networks.as_ref();
            if known.is_some_and(Vec::is_empty) {
                return Err(invalid("Flat provider networks are disabled").into());
            }
            if known.is_some_and(|known| !known.contains(&name)) {
                return Err(unknown(&name, "flat").into());
            }
            if vlan.is_some() {
                return Err(invalid("segmentation_id prohibited for flat provider network").into());
            }
            return Ok(format!("flat:{name}"));
        }
        (Some("flat"), None, _) => {
            return Err(invalid("physical_network required for flat provider network").into());
        }
        (Some(_), Some(name), _) if !options.vlan_networks.contains(&name) => {
            return Err(unknown(&name, "VLAN").into());
        }
        (Some(_), Some(name), Some(vlan)) => return Ok(format!("vlan:{name}:{vlan}")),
        (Some(_), Some(name), None) => {
            let ranges: Vec<_> =
                options.vlan_ranges.iter().filter(|(of, ..)| *of == name).cloned().collect();
            return free_vlan(tx, &ranges, body);
        }
        (Some(_), None, Some(_)) => {
            return Err(invalid(
                "segmentation_id requires physical_network for VLAN provider \
                                network",
            )
            .into());
        }
        (Some(_), None, None) => {}
    }
    free_vlan(tx, &options.vlan_ranges, body)
}

/// The refusal of a physical network that no option names.
fn unknown(physical: &str, kind: &str) -> Refusal {
    let physical = physical.escape_debug();
    invalid(format!("physical_network '{physical}' unknown for {kind} provider network"))
}

fn free_vlan(
    tx: &mut Tx<'_>,
    ranges: &[(String, u16, u16)],
    body: &mut Body,
) -> Result<String, Error> {
    for (physical, first, last) in ranges {
        let prefix = format!("vlan:{physical}:");
        let taken = rows::segments(tx, &prefix)?;
        let free = (*first..=*last).find(|vlan| !taken.contains(&format!("{prefix}{vlan}")));
        if let Some(vlan) = free {
            body.insert("provider:network_type".into(), json!("vlan"));
            body.insert("provider:physical_network".into(), json!(physical));
            body.insert("provider:segmentation_id".into(), json!(vlan));
            return Ok(format!("{prefix}{vlan}"));
        }
    }
    Err(refused(
        Kind::Unavailable,
        "NoNetworkAvailable",
        "Unable to create the network. No tenant network is available for allocation.",
    )
    .into())
}

fn in_use(network: &Network) -> Refusal {
    let physical = network.text("provider:physical_network");
    match network.body["provider:segmentation_id"].as_i64() {
        Some(vlan) => refused(
            Kind::Conflict,
            "VlanIdInUse",
            format!(
                "Unable to create the network. The VLAN {vlan} on physical network {physical} is in use."
            ),
        ),
        None => refused(
            Kind::Conflict,
            "FlatNetworkInUse",
            format!("Unable to create the flat network. Physical network {physical} is in use."),
        ),
    }
}

pub(crate) fn update(
    tx: &mut Tx<'_>,
    options: &NetworkOptions,
    caller: &Caller,
    id: NetworkId,
    sent: &Body,
    now: Timestamp,
) -> Result<Network, Error> {
    let mut network = seen(tx, caller, id)?;
    targets::network(&network).may(caller, "update_network")?;
    let mut set = of_change(ATTRIBUTES, sent)?;
    permitted(ATTRIBUTES, "update_network", caller, &set, &targets::network(&network).sent(&set))?;
    let segment = new_segment(tx, options, &network, &mut set)?;
    check_mtu(options, &set)?;
    let hidden = set.get("shared") == Some(&json!(false)) && network.flag("shared");
    if hidden && foreign_ports(tx, &network)? {
        return Err(refused(Kind::Conflict, "InvalidSharedSetting", format!(
            "Unable to reconfigure sharing settings for network {}. Multiple tenants are using it.",
            network.text("name")
        )).into());
    }
    let internal = set.get("router:external") == Some(&json!(false));
    if internal && network.flag("router:external") && routers::uses_external(tx, network.id)? {
        return Err(refused(Kind::Conflict, "ExternalNetworkInUse", format!(
            "External network {id} cannot be updated to be made non-external, since it has existing \
             gateway ports."
        )).into());
    }
    network.change(set, now);
    rows::update(tx, &network)?;
    if let Some(segment) = segment {
        rows::set_segment(tx, id, &segment).map_err(|error| match error {
            kilonova_store::Error::Unique(_) => in_use(&network).into(),
            other => Error::Store(other),
        })?;
    }
    changes::record(tx, NetworkChange::Network(network.id))?;
    Ok(network)
}

/// The segment that an update gives a network; `None` if the segment stays. Removes all provider
/// attributes from `set`, except a new VLAN.
///
/// This is `_update_provider_network_attributes` of `neutron/plugins/ml2/plugin.py`. Upstream's
/// agents also move bound ports to another VLAN. Here a network with such ports keeps its VLAN.
/// Upstream refuses the present VLAN as in use; here it changes nothing.
fn new_segment(
    tx: &mut Tx<'_>,
    options: &NetworkOptions,
    network: &Network,
    set: &mut Body,
) -> Result<Option<String>, Error> {
    const FIXED: [&str; 2] = ["provider:network_type", "provider:physical_network"];
    const VLAN: &str = "provider:segmentation_id";
    for key in FIXED {
        let sent = set.remove(key).filter(|value| !value.is_null());
        if sent.is_some_and(|value| Some(&value) != network.body.get(key)) {
            return Err(invalid(format!(
                "Plugin does not support updating the following provider network attributes: {}",
                FIXED.join(", ")
            ))
            .into());
        }
    }
    let Some(vlan) = set.remove(VLAN).filter(|value| !value.is_null()) else { return Ok(None) };
    if Some(&vlan) == network.body.get(VLAN) {
        return Ok(None);
    }
    if ports::has_bound(tx, network.id)? {
        return Err(invalid(
            "Provider network attribute provider:segmentation_id cannot be updated if any port in \
             the network has not the following binding:vif_type: unbound, binding_failed",
        )
        .into());
    }
    if network.text("provider:network_type") != "vlan" {
        return Err(invalid("Only VLAN type networks can be updated.").into());
    }
    let physical = network.text("provider:physical_network").to_owned();
    if !options.vlan_networks.contains(&physical) {
        return Err(unknown(&physical, "VLAN").into());
    }
    let segment = format!("vlan:{physical}:{vlan}");
    set.insert(VLAN.into(), vlan);
    Ok(Some(segment))
}

fn foreign_ports(tx: &mut Tx<'_>, network: &Network) -> Result<bool, Error> {
    let query = ports::PortQuery { network: Some(network.id.to_string()), ..Default::default() };
    let foreign = |port: &ports::Port| {
        !port.record.project.is_empty() && port.record.project != network.project
    };
    Ok(ports::list(tx, &query)?.iter().any(foreign))
}

pub(crate) fn delete(tx: &mut Tx<'_>, caller: &Caller, id: NetworkId) -> Result<(), Error> {
    let network = seen(tx, caller, id)?;
    targets::network(&network).may(caller, "delete_network")?;
    dhcp::remove_port(tx, &network)?;
    let used = ports::on_network(tx, network.id)?;
    if !used.is_empty() {
        return Err(refused(Kind::Conflict, "NetworkInUse", format!(
            "Unable to complete operation on network {id}. There are one or more ports still in use \
             on the network, id for these ports: {}.",
            used.join(",")
        )).into());
    }
    for subnet in subnets::of_network(tx, id)? {
        subnets::delete(tx, subnet.record.id)?;
    }
    Ok(rows::delete(tx, id)?)
}

/// Views of the networks visible to the caller.
pub(crate) fn views(tx: &mut Tx<'_>, caller: &Caller) -> Result<Vec<Body>, Error> {
    let reach = Reach::of(caller);
    let all = subnets::list(tx, reach.viewer())?;
    let networks = rows::list(tx, reach.viewer())?;
    let subnets_of = |id: NetworkId| -> Vec<_> {
        all.iter().filter(|subnet| subnet.network == id).map(|subnet| subnet.record.id).collect()
    };
    let rules = AttributeRules::of(caller, "get_network");
    let seen = |network: &Network| {
        let target = targets::network(network);
        let visible = visible(caller, reach, network, &target);
        visible.then(|| view(network, subnets_of(network.id), &rules, &target))
    };
    Ok(networks.iter().filter_map(seen).collect())
}

/// The view of one network.
pub(crate) fn shown(tx: &mut Tx<'_>, network: &Network, caller: &Caller) -> Result<Body, Error> {
    let subnets = subnets::of_network(tx, network.id)?;
    let subnets = subnets.iter().map(|subnet| subnet.record.id).collect();
    Ok(view(
        network,
        subnets,
        &AttributeRules::of(caller, "get_network"),
        &targets::network(network),
    ))
}

fn view(
    network: &Network,
    subnets: Vec<kilonova_ids::SubnetId>,
    rules: &AttributeRules<'_>,
    target: &Target<'_>,
) -> Body {
    let mut view = network.view();
    for (key, value) in [
        ("status", json!("ACTIVE")),
        ("subnets", json!(subnets)),
        ("availability_zones", json!([zones::ZONE])),
        ("ipv4_address_scope", Value::Null),
        ("ipv6_address_scope", Value::Null),
        ("l2_adjacency", json!(true)),
    ] {
        view.insert(key.to_owned(), value);
    }
    rules.hide(&mut view, target);
    view
}
