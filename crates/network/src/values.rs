//! Validation and normalization of attribute values, with Neutron's error messages. Pure.

use std::collections::HashSet;
use std::net::IpAddr;

use kilonova_ids::{NetworkId, parse_uuid_like};
use kilonova_node_api::SixMode;
use serde_json::{Value, json};

use crate::VnicType;
use crate::address::{self, Cidr};

type Checked = Result<Value, String>;

/// Upstream's default for `max_subnet_host_routes`.
const MAX_HOST_ROUTES: usize = 20;
/// Maximum number of addresses of a port.
pub(crate) const MAX_FIXED_IPS: usize = 50;
/// Maximum number of ids in a list; upstream has no limit.
const MAX_IDS: usize = 1000;
/// Maximum number of allocation pools of a subnet; upstream has no limit.
const MAX_POOLS: usize = 100;
/// Upstream's default for `max_routes` (`neutron/conf/db/extraroute_db.py`).
const MAX_ROUTES: usize = 30;

fn display(value: &Value) -> String {
    match value {
        Value::String(text) => text.escape_debug().to_string(),
        other => other.to_string(),
    }
}

pub(crate) fn text(value: &Value) -> Checked {
    text_without(value, char::is_control)
}

/// A description, which may have several lines.
pub(crate) fn long_text(value: &Value) -> Checked {
    text_without(value, |letter| letter.is_control() && !matches!(letter, '\n' | '\r' | '\t'))
}

fn text_without(value: &Value, refused: fn(char) -> bool) -> Checked {
    let Some(text) = value.as_str() else {
        return Err(format!("'{}' is not a valid string", display(value)));
    };
    if text.chars().count() > 255 {
        return Err(format!("'{}' exceeds maximum length of 255", display(value)));
    }
    if text.chars().any(refused) {
        return Err(format!("'{}' contains control characters", display(value)));
    }
    Ok(value.clone())
}

pub(crate) fn text_or_none(value: &Value) -> Checked {
    if value.is_null() { Ok(Value::Null) } else { text(value) }
}

pub(crate) fn flag(value: &Value) -> Checked {
    let wrong = || Err(format!("'{}' cannot be converted to boolean", display(value)));
    match value {
        Value::Bool(_) => Ok(value.clone()),
        Value::Number(number) => match number.as_i64() {
            Some(0) => Ok(json!(false)),
            Some(1) => Ok(json!(true)),
            _ => wrong(),
        },
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "1" => Ok(json!(true)),
            "false" | "0" => Ok(json!(false)),
            _ => wrong(),
        },
        _ => wrong(),
    }
}

pub(crate) fn flag_or_none(value: &Value) -> Checked {
    if value.is_null() { Ok(Value::Null) } else { flag(value) }
}

fn integer(value: &Value) -> Result<i64, String> {
    let number = match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_i64(),
    };
    number.ok_or_else(|| format!("'{}' is not an integer", display(value)))
}

fn between(value: &Value, least: i64, most: i64) -> Checked {
    let number = integer(value)?;
    if number < least {
        return Err(format!("'{number}' is too small - must be at least '{least}'"));
    }
    if number > most {
        return Err(format!("'{number}' is too large - must be no larger than '{most}'"));
    }
    Ok(json!(number))
}

pub(crate) fn mtu(value: &Value) -> Checked {
    between(value, 68, 65535)
}

pub(crate) fn version(value: &Value) -> Checked {
    match integer(value) {
        Ok(number @ (4 | 6)) => Ok(json!(number)),
        _ => Err(format!("'{}' is not in [4, 6]", display(value))),
    }
}

pub(crate) fn vlan(value: &Value) -> Checked {
    if value.is_null() { Ok(Value::Null) } else { between(value, 1, 4094) }
}

pub(crate) fn uuid(value: &Value) -> Checked {
    let id = value.as_str().and_then(parse_uuid_like::<NetworkId>);
    id.map(|id| json!(id)).ok_or_else(|| format!("'{}' is not a valid UUID", display(value)))
}

pub(crate) fn uuid_or_none(value: &Value) -> Checked {
    if value.is_null() { Ok(Value::Null) } else { uuid(value) }
}

/// Accepts false and null only: the attribute is not supported.
pub(crate) fn only_false(value: &Value) -> Checked {
    match flag_or_none(value)? {
        Value::Bool(true) => Err(format!("'{}' is not supported; leave it out", display(value))),
        _ => Ok(json!(false)),
    }
}

/// The gateway of a router; null and an empty object mean none.
pub(crate) fn gateway(value: &Value) -> Checked {
    let fields = match value {
        Value::Null => return Ok(Value::Null),
        Value::Object(fields) if fields.is_empty() => return Ok(Value::Null),
        Value::Object(fields) => fields,
        other => return Err(format!("'{}' is not a dictionary", display(other))),
    };
    let mut kept = serde_json::Map::new();
    for (key, value) in fields {
        let value = match key.as_str() {
            "network_id" => uuid(value)?,
            "enable_snat" => flag(value)?,
            "external_fixed_ips" => match fixed_ips(value)? {
                Value::Array(list) if list.is_empty() => continue,
                Value::Null => continue,
                list => list,
            },
            "qos_policy_id" => {
                only_none(value)?;
                continue;
            }
            _ => return Err(format!("Unexpected keys supplied: {}", key.escape_debug())),
        };
        kept.insert(key.clone(), value);
    }
    if !kept.contains_key("network_id") {
        return Err("Expected keys not found: network_id".into());
    }
    Ok(kept.into())
}

pub(crate) fn uuids(value: &Value) -> Checked {
    if value.is_null() {
        return Ok(json!([]));
    }
    let ids = list(value)?;
    if ids.len() > MAX_IDS {
        return Err(format!("at most {MAX_IDS} ids can be set"));
    }
    let mut ids: Vec<Value> = ids.iter().map(uuid).collect::<Result<_, _>>()?;
    let mut seen = HashSet::new();
    ids.retain(|id| seen.insert(id.as_str().map(str::to_owned)));
    Ok(ids.into())
}

fn list(value: &Value) -> Result<&Vec<Value>, String> {
    value.as_array().ok_or_else(|| format!("'{}' is not a list", display(value)))
}

fn parsed(value: &Value) -> Result<IpAddr, String> {
    let ip = value.as_str().and_then(|text| text.parse::<IpAddr>().ok());
    ip.ok_or_else(|| format!("'{}' is not a valid IP address", display(value)))
}

/// An IP address, or null.
pub(crate) fn ip_or_none(value: &Value) -> Checked {
    if value.is_null() || value == "" { Ok(Value::Null) } else { Ok(json!(parsed(value)?)) }
}

/// Name servers. They keep the spelling of the request, as upstream's `DNSNameServer` objects do.
pub(crate) fn name_servers(value: &Value) -> Checked {
    if value.is_null() {
        return Ok(json!([]));
    }
    let all = list(value)?.iter().map(parsed).collect::<Result<Vec<_>, _>>()?;
    if all.len() > 5 {
        return Err("at most 5 name servers can be set".into());
    }
    if (1..all.len()).any(|at| all[..at].contains(&all[at])) {
        return Err(format!("Duplicate nameserver '{}'", display(value)));
    }
    Ok(value.clone())
}

pub(crate) fn cidr(value: &Value) -> Checked {
    let cidr = value.as_str().and_then(Cidr::parse);
    cidr.map(|cidr| json!(cidr.to_string()))
        .ok_or_else(|| format!("'{}' is not a valid IP subnet", display(value)))
}

/// A prefix that keeps its host bits.
fn prefix(value: &Value) -> Checked {
    let prefix = value.as_str().and_then(address::spelled);
    prefix
        .map(|prefix| json!(prefix))
        .ok_or_else(|| format!("'{}' is not a valid IP subnet", display(value)))
}

/// A prefix that keeps its host bits, as in `convert_ip_prefix_to_cidr` in
/// `neutron/extensions/securitygroup.py`. A single address becomes a host prefix.
pub(crate) fn prefix_or_none(value: &Value) -> Checked {
    if value.is_null() || value == "" {
        return Ok(Value::Null);
    }
    match parsed(value) {
        Ok(ip) => Ok(json!(format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 }))),
        Err(_) => prefix(value),
    }
}

/// The routes of a router.
pub(crate) fn routes(value: &Value) -> Checked {
    distinct_routes(value, MAX_ROUTES)
}

/// The routes that a subnet announces.
pub(crate) fn host_routes(value: &Value) -> Checked {
    distinct_routes(value, MAX_HOST_ROUTES)
}

/// At most `most` routes without duplicates, as in `validate_hostroutes` of
/// `neutron_lib/api/validators/__init__.py`.
fn distinct_routes(value: &Value, most: usize) -> Checked {
    let routes = any_routes(value)?;
    check_number(routes.len(), most)?;
    let mut seen = HashSet::new();
    for route in &routes {
        if !seen.insert(route_key(route)) {
            return Err(format!(
                "Duplicate hostroute '{{'destination': '{}', 'nexthop': '{}'}}'",
                display(&route["destination"]),
                display(&route["nexthop"])
            ));
        }
    }
    Ok(routes.into())
}

/// Limits the routes of a router.
pub(crate) fn check_number_of_routes(count: usize) -> Result<(), String> {
    check_number(count, MAX_ROUTES)
}

fn check_number(count: usize, most: usize) -> Result<(), String> {
    match count > most {
        true => Err(format!("at most {most} routes can be set")),
        false => Ok(()),
    }
}

/// A key that is equal for routes that differ only in the spelling of their destinations.
pub(crate) fn route_key(route: &Value) -> (Option<String>, Option<&str>) {
    let destination = route["destination"].as_str().and_then(address::spelled);
    (destination, route["nexthop"].as_str())
}

/// The destination of a route, as in `validate_route_cidr` of `neutron_lib/api/validators/__init__.py`. It keeps the
/// spelling of the request, as upstream's `AuthenticIPNetwork` does.
fn destination(value: &Value) -> Checked {
    let cidr = value.as_str().and_then(Cidr::parse_exact);
    let cidr = cidr.ok_or_else(|| format!("'{}' is not a valid CIDR", display(value)))?;
    if cidr.base().is_loopback() {
        return Err(format!("'{}' is not a routable CIDR", display(value)));
    }
    Ok(value.clone())
}

/// Routes, some of which may be equal.
pub(crate) fn any_routes(value: &Value) -> Result<Vec<Value>, String> {
    if value.is_null() {
        return Ok(Vec::new());
    }
    let route = |value: &Value| -> Checked {
        let fields = value.as_object().filter(|fields| fields.len() == 2);
        let fields = fields.ok_or_else(|| format!("'{value}' is not a route"))?;
        let get = |key| fields.get(key).ok_or_else(|| format!("a route needs a {key}"));
        let (to, hop) = (destination(get("destination")?)?, parsed(get("nexthop")?)?);
        Ok(json!({"destination": to, "nexthop": hop}))
    };
    list(value)?.iter().map(route).collect()
}

pub(crate) fn pools(value: &Value) -> Checked {
    if value.is_null() {
        return Ok(Value::Null);
    }
    let pool = |value: &Value| -> Checked {
        let fields = value.as_object().filter(|fields| fields.len() == 2);
        let fields = fields.ok_or_else(|| format!("'{value}' is not an allocation pool"))?;
        let get = |key| fields.get(key).ok_or_else(|| format!("a pool needs its {key}"));
        Ok(json!({"start": parsed(get("start")?)?, "end": parsed(get("end")?)?}))
    };
    let pools = list(value)?;
    if pools.len() > MAX_POOLS {
        return Err(format!("at most {MAX_POOLS} allocation pools can be set"));
    }
    Ok(pools.iter().map(pool).collect::<Result<Vec<_>, _>>()?.into())
}

pub(crate) fn fixed_ips(value: &Value) -> Checked {
    let one = |value: &Value| -> Checked {
        let fields = value.as_object().ok_or_else(|| format!("'{value}' is not a fixed IP"))?;
        let mut kept = serde_json::Map::new();
        for (key, value) in fields {
            match key.as_str() {
                "subnet_id" => kept.insert(key.clone(), uuid(value)?),
                "ip_address" => kept.insert(key.clone(), json!(parsed(value)?)),
                _ => {
                    return Err(format!(
                        "'{}' is not an attribute of a fixed IP",
                        key.escape_debug()
                    ));
                }
            };
        }
        if kept.is_empty() {
            return Err("a fixed IP needs subnet_id or ip_address".into());
        }
        Ok(kept.into())
    };
    if value.is_null() {
        return Ok(Value::Null);
    }
    let all = list(value)?;
    if all.len() > MAX_FIXED_IPS {
        return Err(format!("at most {MAX_FIXED_IPS} fixed IPs can be set"));
    }
    Ok(all.iter().map(one).collect::<Result<Vec<_>, _>>()?.into())
}

pub(crate) fn mac(value: &Value) -> Checked {
    let wrong = || format!("'{}' is not a valid MAC address", display(value));
    let text = value.as_str().ok_or_else(wrong)?.to_ascii_lowercase().replace('-', ":");
    let parts: Vec<&str> = text.split(':').collect();
    let byte = |part: &&str| part.len() == 2 && u8::from_str_radix(part, 16).is_ok();
    let good = parts.len() == 6 && parts.iter().all(byte);
    let first = parts.first().and_then(|part| u8::from_str_radix(part, 16).ok());
    // Multicast addresses are not valid for a port.
    if good && first.is_some_and(|first| first & 1 == 0) && text != "00:00:00:00:00:00" {
        return Ok(json!(text));
    }
    Err(wrong())
}

/// Address pairs. Their addresses keep the spelling of the request, as in `_process_create_allowed_address_pairs` of
/// `neutron/db/allowedaddresspairs_db.py`.
pub(crate) fn pairs(value: &Value) -> Checked {
    if value.is_null() {
        return Ok(json!([]));
    }
    let one = |value: &Value| -> Checked {
        let fields =
            value.as_object().ok_or_else(|| format!("'{value}' is not an address pair"))?;
        let unknown = |key: &&String| !["ip_address", "mac_address"].contains(&key.as_str());
        if let Some(key) = fields.keys().find(unknown) {
            return Err(format!("Unrecognized attribute(s) '{}'", key.escape_debug()));
        }
        let ip = fields.get("ip_address").ok_or("AllowedAddressPair must contain ip_address")?;
        let text = ip.as_str().unwrap_or_default();
        if text.contains('/') {
            prefix(ip)?;
        } else {
            parsed(ip)?;
        }
        let mut kept = json!({"ip_address": ip});
        if let Some(hardware) = fields.get("mac_address").filter(|value| !value.is_null()) {
            kept["mac_address"] = mac(hardware)?;
        }
        Ok(kept)
    };
    let pairs = list(value)?;
    if pairs.len() > 50 {
        return Err("at most 50 address pairs can be set".into());
    }
    Ok(pairs.iter().map(one).collect::<Result<Vec<_>, _>>()?.into())
}

pub(crate) fn object(value: &Value) -> Checked {
    match value {
        Value::Null => Ok(json!({})),
        Value::Object(_) if value.to_string().len() <= 4095 => Ok(value.clone()),
        Value::Object(_) => Err("it is longer than 4095 characters".into()),
        _ => Err(format!("'{}' is not a dictionary", display(value))),
    }
}

fn one_of(value: &Value, all: &[&str]) -> Checked {
    match value.as_str() {
        Some(text) if all.contains(&text) => Ok(value.clone()),
        _ => Err(format!("'{}' is not in {all:?}", display(value))),
    }
}

/// The address mode of an IPv6 subnet.
pub(crate) fn ipv6_mode(value: &Value) -> Checked {
    let modes = [SixMode::Slaac, SixMode::Stateful, SixMode::Stateless].map(SixMode::as_str);
    if value.is_null() { Ok(Value::Null) } else { one_of(value, &modes) }
}

/// The attributes of a network that describe its segment.
pub(crate) const PROVIDER: [&str; 3] =
    ["provider:network_type", "provider:physical_network", "provider:segmentation_id"];

/// True for the values that are false in Python.
fn is_falsy(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// The segments of a new network, each with all of [`PROVIDER`]. A `provider:segmentation_id` that is false in Python is
/// unset, as in `convert_and_validate_segments` of `neutron_lib/api/validators/multiprovidernet.py`: Go clients send 0
/// for a segment without one.
pub(crate) fn segments(value: &Value) -> Checked {
    if value.is_null() {
        return Ok(Value::Null);
    }
    let one = |value: &Value| -> Checked {
        let fields = value.as_object();
        let fields = fields.ok_or_else(|| format!("'{}' is not a dictionary", display(value)))?;
        let mut kept: serde_json::Map<String, Value> =
            PROVIDER.iter().map(|key| ((*key).to_owned(), Value::Null)).collect();
        for (key, value) in fields {
            let value = match key.as_str() {
                "provider:network_type" => network_type(value)?,
                "provider:physical_network" => text_or_none(value)?,
                "provider:segmentation_id" if is_falsy(value) => Value::Null,
                "provider:segmentation_id" => vlan(value)?,
                _ => return Err(format!("Unrecognized attribute(s) '{}'", key.escape_debug())),
            };
            kept.insert(key.clone(), value);
        }
        Ok(kept.into())
    };
    Ok(list(value)?.iter().map(one).collect::<Result<Vec<_>, _>>()?.into())
}

/// Names of availability zones without duplicates. As in upstream, their existence is not checked.
pub(crate) fn zone_hints(value: &Value) -> Checked {
    let hints = list(value)?.iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let mut seen = HashSet::new();
    if !hints.iter().all(|hint| seen.insert(hint.as_str())) {
        return Err(format!("Duplicate items in the list: '{}'", display(value)));
    }
    if value.to_string().len() > 255 {
        return Err("Too many availability_zone_hints specified".into());
    }
    Ok(hints.into())
}

pub(crate) fn network_type(value: &Value) -> Checked {
    if value.is_null() { Ok(Value::Null) } else { one_of(value, &["flat", "vlan"]) }
}

/// Upstream's VNIC types that a Linux bridge or a passed-through function can provide.
pub(crate) fn vnic_type(value: &Value) -> Checked {
    one_of(value, &VnicType::ALL.map(VnicType::as_str))
}

pub(crate) fn direction(value: &Value) -> Checked {
    one_of(value, &["ingress", "egress"])
}

pub(crate) fn ethertype(value: &Value) -> Checked {
    match value.as_str().map(str::to_ascii_lowercase).as_deref() {
        Some("ipv4") | None if value.is_null() || value.is_string() => Ok(json!("IPv4")),
        Some("ipv6") => Ok(json!("IPv6")),
        _ => Err(format!("'{}' is not in ['IPv4', 'IPv6']", display(value))),
    }
}

/// Accepts any value; the code that uses the attribute validates it.
pub(crate) fn any(value: &Value) -> Checked {
    Ok(value.clone())
}

/// The protocol names that `app::rules::protocol_number` accepts.
pub(crate) const PROTOCOLS: &[&str] = &[
    "ah",
    "dccp",
    "egp",
    "esp",
    "gre",
    "hopopt",
    "icmp",
    "icmpv6",
    "igmp",
    "ip",
    "ipip",
    "ipv6-encap",
    "ipv6-frag",
    "ipv6-icmp",
    "ipv6-nonxt",
    "ipv6-opts",
    "ipv6-route",
    "ospf",
    "pgm",
    "rsvp",
    "sctp",
    "tcp",
    "udp",
    "udplite",
    "vrrp",
];

pub(crate) fn protocol(value: &Value) -> Checked {
    if value.is_null() || value == "any" || value == "" {
        return Ok(Value::Null);
    }
    let name = match value {
        Value::String(text) => text.to_ascii_lowercase(),
        other => other.to_string(),
    };
    if name.parse::<u8>().is_ok() || PROTOCOLS.contains(&name.as_str()) {
        return Ok(json!(name));
    }
    Err(format!(
        "Security group rule protocol {} not supported. Only protocol values [{}] and integer \
         representations [0 to 255] are supported",
        display(value),
        PROTOCOLS.join(", ")
    ))
}

pub(crate) fn tags(value: &Value) -> Checked {
    let tags = list(value)?;
    let good = |tag: &Value| {
        tag.as_str().is_some_and(|tag| {
            (1..=255).contains(&tag.chars().count()) && !tag.chars().any(char::is_control)
        })
    };
    if tags.len() > 50 || !tags.iter().all(good) {
        return Err("at most 50 tags of 1 to 255 characters are allowed".into());
    }
    let mut tags: Vec<&str> = tags.iter().filter_map(Value::as_str).collect();
    tags.sort_unstable();
    tags.dedup();
    Ok(json!(tags))
}

pub(crate) fn dns_name(value: &Value) -> Checked {
    let text =
        value.as_str().ok_or_else(|| format!("'{}' is not a valid string", display(value)))?;
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if text.is_empty() || (text.len() <= 255 && text.trim_end_matches('.').split('.').all(label)) {
        return Ok(json!(text));
    }
    Err(format!("'{}' not a valid PQDN or FQDN", display(value)))
}

/// Accepts null only: the attribute is not supported.
pub(crate) fn only_none(value: &Value) -> Checked {
    match value {
        Value::Null => Ok(Value::Null),
        other => Err(format!("'{}' is not supported; leave it out", display(other))),
    }
}

/// Accepts only an empty list or null.
pub(crate) fn empty_or_none(value: &Value) -> Checked {
    if value.is_null() { Ok(json!([])) } else { only_empty(value) }
}

pub(crate) fn only_empty(value: &Value) -> Checked {
    match value {
        Value::Array(list) if list.is_empty() => Ok(json!([])),
        other => Err(format!("'{}' is not supported; leave it out", display(other))),
    }
}
