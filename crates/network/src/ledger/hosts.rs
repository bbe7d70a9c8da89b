//! Security groups in the form that hosts need, and the servers whose hosts a change affects.

use std::collections::BTreeSet;

use kilonova_ids::{SecurityGroupId, ServerId};
use kilonova_node_api::{
    AllowedAddressPair, Direction, FilterGroup, FilterGroupMembers, FilterRule, Filters,
    PortFilter, Prefix, Remote,
};
use kilonova_store::Tx;
use serde_json::Value as Json;

use crate::Error;
use crate::address::Cidr;
use crate::app::rules::protocol_number;
pub use crate::db::changes::NetworkChange;
use crate::db::filters::{self as rows, FilteredPort};
use crate::db::{changes, groups};
use crate::record::Body;

/// True if a recorded change awaits delivery to hosts.
///
/// # Errors
/// Database errors; also for all functions below.
pub fn has_changed(tx: &mut Tx<'_>) -> Result<bool, Error> {
    Ok(changes::any(tx)?)
}

/// Removes and returns the recorded changes; the caller must deliver them.
pub fn take_changes(tx: &mut Tx<'_>) -> Result<Vec<NetworkChange>, Error> {
    Ok(changes::take(tx)?)
}

/// Records a change for later delivery.
pub fn record_change(tx: &mut Tx<'_>, change: NetworkChange) -> Result<(), Error> {
    Ok(changes::record(tx, change)?)
}

/// The servers whose hosts need new security group rules.
pub fn servers_to_filter(
    tx: &mut Tx<'_>,
    changes: &[NetworkChange],
) -> Result<BTreeSet<ServerId>, Error> {
    let (mut changed, mut referenced) = (BTreeSet::new(), BTreeSet::new());
    for change in changes {
        match change {
            NetworkChange::Rules(id) => changed.insert(*id),
            NetworkChange::Members(id) => referenced.insert(*id),
            NetworkChange::Port(_) | NetworkChange::Network(_) | NetworkChange::Router(_) => false,
        };
    }
    changed.extend(rows::referencing(tx, &referenced)?);
    let mut found = rows::servers_in_groups(tx, &changed)?;
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
    Ok(match change {
        NetworkChange::Port(id) => rows::server_of_port(tx, id)?,
        NetworkChange::Network(id) => rows::servers_on_network(tx, id)?,
        NetworkChange::Rules(_) | NetworkChange::Members(_) | NetworkChange::Router(_) => {
            BTreeSet::new()
        }
    })
}

/// The packet filters of the ports of these servers, on any host.
pub fn filters(tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<Filters, Error> {
    let mut filters = Filters::default();
    groups::expect_of_servers(tx, servers)?;
    let found = rows::of_servers(tx, &servers.iter().copied().collect())?;
    filters.ports.extend(found.ports.iter().map(port));
    let groups: BTreeSet<SecurityGroupId> =
        filters.ports.iter().flat_map(|port| port.groups.iter().copied()).collect();
    let mut names = super::group_names(tx, servers)?;
    let mut group = |id: &SecurityGroupId| {
        let name = names.remove(&id.to_string()).unwrap_or_default();
        FilterGroup { id: *id, name, rules: Vec::new() }
    };
    filters.groups = groups.iter().map(&mut group).collect();
    let mut remote_groups = BTreeSet::new();
    for row in found.rules {
        let rule = rule(&row.body)?;
        if let Some(Remote::Group(remote)) = rule.remote {
            remote_groups.insert(remote);
        }
        if let Some(group) = filters.groups.iter_mut().find(|group| group.id == row.group) {
            group.rules.push(rule);
        }
    }
    let empty = |id: &SecurityGroupId| FilterGroupMembers { group: *id, addresses: Vec::new() };
    filters.members = remote_groups.iter().map(empty).collect();
    for row in found.members {
        let Some(members) = filters.members.iter_mut().find(|one| one.group == row.group) else {
            continue;
        };
        members.addresses.extend(Prefix::parse(&row.address));
        if let Some(body) = &row.body {
            members.addresses.extend(pairs(body).into_iter().map(|pair| pair.prefix));
        }
    }
    for members in &mut filters.members {
        members.addresses.sort_unstable();
        members.addresses.dedup();
    }
    Ok(filters)
}

fn port(row: &FilteredPort) -> PortFilter {
    let body = &row.body;
    let flag = |key: &str| body.get(key).and_then(Json::as_bool).unwrap_or(true);
    let groups = body.get("security_groups").and_then(Json::as_array).into_iter().flatten();
    PortFilter {
        port: row.id,
        up: flag("admin_state_up"),
        secure: flag("port_security_enabled"),
        groups: groups.filter_map(|id| id.as_str()?.parse().ok()).collect(),
        pairs: pairs(body),
    }
}

fn pairs(body: &Body) -> Vec<AllowedAddressPair> {
    let pairs = body.get("allowed_address_pairs").and_then(Json::as_array);
    let pair = |pair: &Json| {
        Some(AllowedAddressPair {
            mac: pair["mac_address"].as_str().map(str::to_owned),
            prefix: prefix(pair["ip_address"].as_str()?)?,
        })
    };
    pairs.into_iter().flatten().filter_map(pair).collect()
}

/// Parses a prefix and clears its host bits, or parses a single address. Stored prefixes keep the host bits, but
/// nftables intervals start at the first address.
fn prefix(text: &str) -> Option<Prefix> {
    match Cidr::parse(text) {
        Some(cidr) => Some(Prefix { address: cidr.base(), length: cidr.prefix }),
        None => Prefix::parse(text),
    }
}

/// Converts a stored rule to the form that hosts need.
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
        (Some(text), _) => {
            Some(Remote::Prefix(prefix(text).ok_or_else(|| shape(format!("prefix {text}")))?))
        }
        (None, Some(group)) => Some(Remote::Group(group.parse().map_err(shape)?)),
        (None, None) => None,
    };
    Ok(FilterRule {
        direction: match text("direction") {
            Some("ingress") => Direction::Ingress,
            Some("egress") => Direction::Egress,
            other => return Err(shape(format!("direction {other:?}"))),
        },
        six: text("ethertype") == Some("IPv6"),
        protocol,
        first: end("port_range_min"),
        last: end("port_range_max"),
        remote,
    })
}

/// The error for a stored value that does not match its type.
fn shape(what: impl std::fmt::Display) -> Error {
    Error::Store(kilonova_store::Error::Shape(what.to_string()))
}
