//! Security group rules. Each rule allows traffic. A rule is created and deleted, but never
//! changed.

use jiff::Timestamp;
use kilonova_access::Caller;
use kilonova_ids::{SecurityGroupId, SecurityGroupRuleId, parse_uuid_like};
use kilonova_store::Tx;
use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;
use serde_json::{Value, json};

use super::{Reach, groups, quotas, targets};
use crate::address::Cidr;
use crate::attributes::{Attribute, empty, none, of_new};
use crate::db::changes::{self, NetworkChange};
use crate::db::groups::{self as rows, Group, Rule};
use crate::error::{not_found, refused};
use crate::record::{Body, Record};
use crate::{Error, values};

pub(crate) const KIND: &str = "security_group_rule";

/// The attributes.
pub(crate) const ATTRIBUTES: &[Attribute] = &[
    Attribute::required("security_group_id", values::text),
    Attribute::required("direction", values::direction),
    Attribute::new("description", values::long_text, empty).fixed(),
    Attribute::new("ethertype", values::ethertype, || json!("IPv4")).fixed(),
    Attribute::new("protocol", values::protocol, none).fixed(),
    Attribute::new("port_range_min", values::any, none).fixed(),
    Attribute::new("port_range_max", values::any, none).fixed(),
    Attribute::new("remote_ip_prefix", values::prefix_or_none, none).fixed(),
    Attribute::new("remote_group_id", values::text_or_none, none).fixed(),
    Attribute::new("remote_address_group_id", values::only_none, none).fixed(),
];

/// Adds a rule that allows all traffic of a family, optionally only from or to a group's members.
pub(crate) fn allow(
    tx: &mut Tx<'_>,
    group: &Group,
    direction: &str,
    ethertype: &str,
    remote: Option<SecurityGroupId>,
    now: Timestamp,
) -> Result<(), Error> {
    let body = json!({"description": "", "direction": direction, "ethertype": ethertype,
        "protocol": null, "port_range_min": null, "port_range_max": null,
        "remote_ip_prefix": null, "remote_group_id": remote, "remote_address_group_id": null});
    let record = Record::new(&group.project, body.as_object().cloned().unwrap_or_default(), now);
    Ok(rows::insert_rule(tx, &Rule { record, group: group.id })?)
}

pub(crate) fn create(
    tx: &mut Tx<'_>,
    caller: &Caller,
    sent: &Body,
    now: Timestamp,
) -> Result<Rule, Error> {
    let mut body = of_new(ATTRIBUTES, sent)?;
    for end in ["port_range_min", "port_range_max"] {
        body.insert(end.into(), port_number(&body[end])?);
    }
    let id = group_id(&body["security_group_id"])?;
    let group = groups::seen(tx, caller, id)?;
    // The group's own attributes are not those of the rule.
    let target = targets::new_group(&group.project).sent(&body);
    target.may(caller, "create_security_group_rule")?;
    body.remove("security_group_id");
    make_canonical(&mut body);
    check(&body)?;
    if !body["remote_group_id"].is_null() {
        let remote = group_id(&body["remote_group_id"])?;
        groups::usable(tx, caller, &group.project, remote)?;
        body.insert("remote_group_id".into(), json!(remote));
    }
    for rule in rows::rules_of(tx, id)? {
        if key(&rule.record.body) == key(&body) {
            return Err(refused(
                Kind::Conflict,
                "SecurityGroupRuleExists",
                format!("Security group rule already exists. Rule id is {}.", rule.record.id),
            )
            .into());
        }
    }
    quotas::check(tx, &group.project, quotas::RULE, 1)?;
    // A group changes with its rules, as in `revises_on_change` of `neutron/db/models/securitygroup.py`. This also
    // serializes concurrent requests for equal rules.
    rows::revise(tx, id, now)?;
    let rule = Rule { record: Record::new(&group.project, body, now), group: id };
    rows::insert_rule(tx, &rule)?;
    changes::record(tx, NetworkChange::Rules(id))?;
    Ok(rule)
}

/// The id of a referenced group; a malformed id is a 404.
fn group_id(value: &Value) -> Result<SecurityGroupId, Refusal> {
    let text = value.as_str().unwrap_or_default();
    parse_uuid_like(text).ok_or_else(|| not_found("security_group", text.escape_debug()))
}

/// Parses one end of a port range.
fn port_number(value: &Value) -> Result<Value, Refusal> {
    let number = match value {
        Value::Null => return Ok(Value::Null),
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_i64(),
    };
    let number = number.filter(|number| (0..=65535).contains(number));
    number.map(|number| json!(number)).ok_or_else(|| {
        let sent = match value {
            Value::String(text) => text.escape_debug().to_string(),
            other => other.to_string(),
        };
        let message = format!("Invalid value for port {sent}");
        refused(Kind::BadRequest, "SecurityGroupInvalidPortValue", message)
    })
}

/// The number of a protocol name; `Some(None)` means any protocol, `None` an unknown name.
pub(crate) fn protocol_number(name: &str) -> Option<Option<u8>> {
    let number = match name {
        "ip" => return Some(None),
        "hopopt" => 0,
        "icmp" => 1,
        "igmp" => 2,
        "ipip" => 4,
        "tcp" => 6,
        "egp" => 8,
        "udp" => 17,
        "dccp" => 33,
        "ipv6-encap" => 41,
        "ipv6-route" => 43,
        "ipv6-frag" => 44,
        "rsvp" => 46,
        "gre" => 47,
        "esp" => 50,
        "ah" => 51,
        "icmpv6" | "ipv6-icmp" => 58,
        "ipv6-nonxt" => 59,
        "ipv6-opts" => 60,
        "ospf" => 89,
        "vrrp" => 112,
        "pgm" => 113,
        "sctp" => 132,
        "udplite" => 136,
        number => number.parse().ok()?,
    };
    Some(Some(number))
}

/// The protocol of a rule in upstream's spelling: for IPv6, ICMP is `ipv6-icmp` or 58. See
/// `_make_canonical_ipv6_icmp_protocol` of `neutron/db/securitygroups_db.py`.
fn canonical_protocol(body: &Body) -> Option<&str> {
    let ipv6 = body.get("ethertype").is_some_and(|ethertype| ethertype == "IPv6");
    match body.get("protocol")?.as_str()? {
        "icmp" | "icmpv6" if ipv6 => Some("ipv6-icmp"),
        "1" if ipv6 => Some("58"),
        name => Some(name),
    }
}

/// Converts a new rule to upstream's spelling, in which the range of all ports is stored as no range
/// (`_make_canonical_port_range` of `neutron/db/securitygroups_db.py`).
fn make_canonical(body: &mut Body) {
    let protocol = canonical_protocol(body).map_or(Value::Null, Value::from);
    body.insert("protocol".into(), protocol);
    if body["port_range_min"] == 1 && body["port_range_max"] == 65535 {
        body.insert("port_range_min".into(), Value::Null);
        body.insert("port_range_max".into(), Value::Null);
    }
}

/// The match of a rule, which must be unique within its group. As in `_rule_to_key` of
/// `neutron/db/securitygroups_db.py`, a protocol's name equals its number, and a missing prefix equals the prefix of
/// all addresses. Upstream treats `ip` and 0 as equal; they differ here, because a rule for `ip` allows any protocol.
fn key(body: &Body) -> Vec<Value> {
    let value = |name: &str| body.get(name).cloned().unwrap_or(Value::Null);
    let protocol = canonical_protocol(body).map(|name| match protocol_number(name) {
        Some(Some(number)) => json!(number),
        _ => json!(name),
    });
    let prefix = value("remote_ip_prefix");
    let any = prefix == "0.0.0.0/0" || prefix == "::/0";
    let mut key: Vec<Value> =
        ["direction", "ethertype", "port_range_min", "port_range_max", "remote_group_id"]
            .map(value)
            .into();
    key.push(json!(protocol));
    key.push(if any { Value::Null } else { prefix });
    key
}

/// Protocols that exist only in IPv6.
const IPV6_ONLY: [u8; 6] = [41, 43, 44, 58, 59, 60];

/// Refuses contradictions in a rule. The checks run in the order of `_validate_base_security_group_rule_attributes` of
/// `neutron/db/securitygroups_db.py`.
fn check(body: &Body) -> Result<(), Refusal> {
    let (least, most) = (body["port_range_min"].as_i64(), body["port_range_max"].as_i64());
    let protocol = body["protocol"].as_str();
    if least.is_some() || most.is_some() {
        check_ports(protocol, least, most)?;
    }
    let ethertype = body["ethertype"].as_str().unwrap_or_default();
    let ipv6 = ethertype == "IPv6";
    let prefix = body["remote_ip_prefix"].as_str();
    let remote = prefix.and_then(Cidr::parse);
    if remote.is_some_and(|remote| (remote.version() == 6) != ipv6) {
        return Err(refused(
            Kind::BadRequest,
            "SecurityGroupRuleParameterConflict",
            format!(
                "Conflicting value ethertype {ethertype} for CIDR {}",
                prefix.unwrap_or_default()
            ),
        ));
    }
    let number = protocol.and_then(protocol_number).flatten();
    if !ipv6 && number.is_some_and(|number| IPV6_ONLY.contains(&number)) {
        return Err(refused(
            Kind::BadRequest,
            "SecurityGroupEthertypeConflictWithProtocol",
            format!("Invalid ethertype {ethertype} for protocol {}.", protocol.unwrap_or_default()),
        ));
    }
    if remote.is_some() && !body["remote_group_id"].is_null() {
        return Err(refused(
            Kind::BadRequest,
            "SecurityGroupMultipleRemoteEntites",
            "Only one of remote_ip_prefix or remote_group_id or remote_address_group_id may be \
             provided.",
        ));
    }
    Ok(())
}

/// Refuses ports that do not fit the protocol.
fn check_ports(
    protocol: Option<&str>,
    least: Option<i64>,
    most: Option<i64>,
) -> Result<(), Refusal> {
    let protocol = protocol.ok_or_else(|| {
        refused(
            Kind::BadRequest,
            "SecurityGroupProtocolRequiredWithPorts",
            "Must also specify protocol if port range is given.",
        )
    })?;
    match protocol_number(protocol).flatten().unwrap_or_default() {
        1 | 58 => {
            let wrong = [("type", least), ("code", most)]
                .into_iter()
                .find(|(_, value)| value.is_some_and(|value| !(0..=255).contains(&value)));
            if let Some((field, value)) = wrong {
                return Err(refused(
                    Kind::BadRequest,
                    "SecurityGroupInvalidIcmpValue",
                    format!(
                        "Invalid value for ICMP {field} (port_range_{}) {}. It must be 0 to 255.",
                        if field == "type" { "min" } else { "max" },
                        value.unwrap_or_default()
                    ),
                ));
            }
            if least.is_none() {
                return Err(refused(
                    Kind::BadRequest,
                    "SecurityGroupMissingIcmpType",
                    format!(
                        "ICMP code (port-range-max) {} is provided but ICMP type (port-range-min) is \
                     missing.",
                        most.unwrap_or_default()
                    ),
                ));
            }
            Ok(())
        }
        6 | 17 | 33 | 132 | 136 => match (least, most) {
            (Some(0), _) | (_, Some(0)) => Err(refused(
                Kind::BadRequest,
                "SecurityGroupInvalidPortValue",
                "Invalid value for port 0",
            )),
            (Some(least), Some(most)) if (1..=most).contains(&least) => Ok(()),
            _ => Err(refused(
                Kind::BadRequest,
                "SecurityGroupInvalidPortRange",
                "For TCP/UDP protocols, port_range_min must be <= port_range_max",
            )),
        },
        other => Err(refused(
            Kind::BadRequest,
            "SecurityGroupInvalidProtocolForPort",
            format!(
                "Ports cannot be specified for protocol {other}. Ports are only supported for DCCP, \
                 SCTP, TCP, UDP, UDPLITE."
            ),
        )),
    }
}

pub(crate) fn seen(
    tx: &mut Tx<'_>,
    caller: &Caller,
    id: SecurityGroupRuleId,
) -> Result<Rule, Error> {
    let missing = || not_found(KIND, id);
    let rule = rows::find_rule(tx, id)?.ok_or_else(missing)?;
    groups::seen(tx, caller, rule.group).map_err(|_| missing())?;
    if visible(caller, &rule) { Ok(rule) } else { Err(missing().into()) }
}

pub(crate) fn delete(
    tx: &mut Tx<'_>,
    caller: &Caller,
    id: SecurityGroupRuleId,
    now: Timestamp,
) -> Result<(), Error> {
    let rule = seen(tx, caller, id)?;
    targets::rule(&rule).may(caller, "delete_security_group_rule")?;
    changes::record(tx, NetworkChange::Rules(rule.group))?;
    rows::revise(tx, rule.group, now)?;
    Ok(rows::delete_rule(tx, rule.record.id)?)
}

pub(crate) fn views(tx: &mut Tx<'_>, caller: &Caller) -> Result<Vec<Body>, Error> {
    let all = rows::list_rules(tx, Reach::of(caller).viewer())?;
    Ok(all.iter().filter(|rule| visible(caller, rule)).map(view).collect())
}

fn visible(caller: &Caller, rule: &Rule) -> bool {
    targets::rule(rule).allows(caller, "get_security_group_rule")
}

pub(crate) fn view(rule: &Rule) -> Body {
    let mut view = rule.record.view();
    view.insert("security_group_id".into(), json!(rule.group));
    // The prefix without its host bits.
    let prefix = rule.record.body.get("remote_ip_prefix").and_then(Value::as_str);
    let normalized = prefix.and_then(Cidr::parse).map(|prefix| prefix.to_string());
    view.insert("normalized_cidr".into(), json!(normalized));
    view.insert("belongs_to_default_sg".into(), Value::Null);
    view
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocol_has_a_number() {
        for name in values::PROTOCOLS {
            assert!(protocol_number(name).is_some(), "{name}");
        }
        for number in ["0", "255", "+6", "06"] {
            assert!(values::protocol(&json!(number)).is_ok(), "{number}");
            assert!(protocol_number(number).is_some(), "{number}");
        }
        for wrong in ["-0", "256", "x"] {
            assert!(values::protocol(&json!(wrong)).is_err(), "{wrong}");
        }
    }
}
