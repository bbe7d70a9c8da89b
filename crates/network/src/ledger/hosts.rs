//! Security groups as hosts need them, and the servers whose hosts a change affects.

use std::collections::BTreeSet;

use kilonova_ids::{SecurityGroupId, ServerId};
use kilonova_node_api::{
    AllowedAddressPair, Direction, FilterGroup, FilterGroupMembers, FilterRule, Filters,
    PortFilter, Prefix, Remote,
};
use kilonova_store::{Row, Tx, Value, listed, statements};
use serde_json::Value as Json;

use super::show::{MOST, shape};
use crate::Error;
use crate::app::rules::protocol_number;
use crate::db::changes;
pub use crate::db::changes::NetworkChange;
use crate::record::Body;

statements! {
    /// Groups with a rule that references one of these.
    NAMING = "SELECT DISTINCT security_group_id FROM security_group_rules
        WHERE remote_group_id IN ({})";
        /// Servers with a port in one of these groups.
        SERVERS_WITH = "SELECT DISTINCT p.server_id FROM port_groups g JOIN ports p ON p.id = g.port_id
        WHERE g.group_id IN ({}) AND p.server_id IS NOT NULL";
    /// Ports of servers.
    PORTS = "SELECT id, body FROM ports WHERE server_id IN ({}) ORDER BY seq";
    /// Rules of groups.
    RULES = "SELECT security_group_id, body FROM security_group_rules
        WHERE security_group_id IN ({}) ORDER BY seq";
    /// Addresses of the members of groups.
    MEMBERS = "SELECT g.group_id, a.address, CASE
            WHEN p.body LIKE '%\"allowed_address_pairs\":[]%' THEN NULL ELSE p.body END
        FROM port_groups g JOIN ports p ON p.id = g.port_id
        JOIN port_addresses a ON a.port_id = p.id WHERE g.group_id IN ({}) ORDER BY a.address";
    /// The server of a port.
    OF_PORT = "SELECT server_id FROM ports WHERE id IN ({}) AND server_id IS NOT NULL";
    /// Servers on a network.
    ON_NETWORK = "SELECT DISTINCT server_id FROM ports WHERE network_id IN ({})
        AND server_id IS NOT NULL";
}

/// True if a recorded change awaits delivery to hosts.
///
/// # Errors
/// Database errors; so for all functions here.
pub fn has_changed(tx: &mut Tx<'_>) -> Result<bool, Error> {
    Ok(changes::any(tx)?)
}

/// Removes and returns the recorded changes; the caller must deliver them.
pub fn take_changes(tx: &mut Tx<'_>) -> Result<Vec<NetworkChange>, Error> {
    Ok(changes::take(tx)?)
}

/// Records a change for later delivery.
pub fn record_change(tx: &mut Tx<'_>, change: NetworkChange) -> Result<(), Error> {
    Ok(changes::note(tx, change)?)
}

/// Runs a query over ids in batches.
fn over(tx: &mut Tx<'_>, sql: &str, ids: &BTreeSet<String>) -> Result<Vec<Row>, Error> {
    let ids: Vec<&String> = ids.iter().collect();
    let mut rows = Vec::new();
    for some in ids.chunks(MOST) {
        let sql = listed(sql, some.len());
        let values: Vec<Value> = some.iter().map(|id| Value::from(*id)).collect();
        rows.extend(tx.rows(&sql, &values)?);
    }
    Ok(rows)
}

fn servers(rows: &[Row]) -> Result<BTreeSet<ServerId>, Error> {
    Ok(rows.iter().map(|row| row.id(0)).collect::<Result<_, kilonova_store::Error>>()?)
}

/// The servers whose hosts need new security group rules.
pub fn servers_to_filter(
    tx: &mut Tx<'_>,
    changes: &[NetworkChange],
) -> Result<BTreeSet<ServerId>, Error> {
    let (mut groups, mut named) = (BTreeSet::new(), BTreeSet::new());
    for change in changes {
        match change {
            NetworkChange::Rules(id) => groups.insert(id.to_string()),
            NetworkChange::Members(id) => named.insert(id.to_string()),
            NetworkChange::Port(_) | NetworkChange::Network(_) => false,
        };
    }
    for row in over(tx, NAMING, &named)? {
        groups.insert(row.string(0)?);
    }
    let mut found = servers(&over(tx, SERVERS_WITH, &groups)?)?;
    for change in changes {
        if matches!(change, NetworkChange::Port(_)) {
            found.extend(servers_to_reconnect(tx, *change)?);
        }
    }
    Ok(found)
}

/// The servers whose connections the change may affect.
pub fn servers_to_reconnect(
    tx: &mut Tx<'_>,
    change: NetworkChange,
) -> Result<BTreeSet<ServerId>, Error> {
    let (sql, id) = match change {
        NetworkChange::Port(id) => (OF_PORT, id.to_string()),
        NetworkChange::Network(id) => (ON_NETWORK, id.to_string()),
        NetworkChange::Rules(_) | NetworkChange::Members(_) => return Ok(BTreeSet::new()),
    };
    servers(&over(tx, sql, &BTreeSet::from([id]))?)
}

/// The rules for the ports of these servers, on any host.
pub fn filters(tx: &mut Tx<'_>, of: &[ServerId]) -> Result<Filters, Error> {
    let of: BTreeSet<String> = of.iter().map(ServerId::to_string).collect();
    let mut filters = Filters::default();
    for row in over(tx, PORTS, &of)? {
        filters.ports.push(port(&row)?);
    }
    let groups: BTreeSet<SecurityGroupId> =
        filters.ports.iter().flat_map(|port| port.groups.iter().copied()).collect();
    filters.groups = groups.iter().map(|id| FilterGroup { id: *id, rules: Vec::new() }).collect();
    let ids: BTreeSet<String> = groups.iter().map(SecurityGroupId::to_string).collect();
    let mut named = BTreeSet::new();
    for row in over(tx, RULES, &ids)? {
        let id: SecurityGroupId = row.id(0)?;
        let rule = rule(&serde_json::from_str(row.text(1)?).map_err(shape)?)?;
        if let Some(Remote::Group(remote)) = rule.remote {
            named.insert(remote);
        }
        if let Some(group) = filters.groups.iter_mut().find(|group| group.id == id) {
            group.rules.push(rule);
        }
    }
    filters.members =
        named.iter().map(|id| FilterGroupMembers { group: *id, addresses: Vec::new() }).collect();
    let named: BTreeSet<String> = named.iter().map(SecurityGroupId::to_string).collect();
    for row in over(tx, MEMBERS, &named)? {
        let id: SecurityGroupId = row.id(0)?;
        let Some(members) = filters.members.iter_mut().find(|one| one.group == id) else {
            continue;
        };
        members.addresses.extend(Prefix::parse(row.text(1)?));
        if let Some(body) = row.text_opt(2)? {
            let body: Body = serde_json::from_str(body).map_err(shape)?;
            members.addresses.extend(pairs(&body).into_iter().map(|pair| pair.prefix));
        }
    }
    for members in &mut filters.members {
        members.addresses.sort_unstable();
        members.addresses.dedup();
    }
    Ok(filters)
}

fn port(row: &Row) -> Result<PortFilter, Error> {
    let body: Body = serde_json::from_str(row.text(1)?).map_err(shape)?;
    let flag = |key: &str| body.get(key).and_then(Json::as_bool).unwrap_or(true);
    let groups = body.get("security_groups").and_then(Json::as_array).into_iter().flatten();
    Ok(PortFilter {
        port: row.id(0)?,
        up: flag("admin_state_up"),
        secure: flag("port_security_enabled"),
        groups: groups.filter_map(|id| id.as_str()?.parse().ok()).collect(),
        pairs: pairs(&body),
    })
}

fn pairs(body: &Body) -> Vec<AllowedAddressPair> {
    let pairs = body.get("allowed_address_pairs").and_then(Json::as_array);
    let pair = |pair: &Json| {
        Some(AllowedAddressPair {
            mac: pair["mac_address"].as_str().map(str::to_owned),
            prefix: Prefix::parse(pair["ip_address"].as_str()?)?,
        })
    };
    pairs.into_iter().flatten().filter_map(pair).collect()
}

/// Converts a stored rule to the form for hosts.
fn rule(body: &Body) -> Result<FilterRule, Error> {
    let text = |key: &str| body.get(key).and_then(Json::as_str);
    let end = |key: &str| {
        let end = body.get(key).and_then(Json::as_i64);
        end.and_then(|end| u16::try_from(end).ok())
    };
    let protocol = match text("protocol") {
        None => None,
        Some(name) => protocol_number(name).ok_or_else(|| shape(format!("protocol {name}")))?,
    };
    let remote = match (text("remote_ip_prefix"), text("remote_group_id")) {
        (Some(prefix), _) => Some(Remote::Prefix(
            Prefix::parse(prefix).ok_or_else(|| shape(format!("prefix {prefix}")))?,
        )),
        (None, Some(group)) => Some(Remote::Group(group.parse().map_err(shape)?)),
        (None, None) => None,
    };
    Ok(FilterRule {
        direction: match text("direction") {
            Some("ingress") => Direction::Ingress,
            _ => Direction::Egress,
        },
        six: text("ethertype") == Some("IPv6"),
        protocol,
        first: end("port_range_min"),
        last: end("port_range_max"),
        remote,
    })
}
