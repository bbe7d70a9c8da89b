//! Queries that the compute service makes before it attaches ports to a server, and changes to the security groups of
//! those ports.

use jiff::Timestamp;
use kilonova_ids::{NetworkId, PortId, SecurityGroupId, ServerId};
use kilonova_store::Tx;
use serde_json::{Value, json};

use crate::app::{groups, quotas};
use crate::db::networks::Network;
use crate::db::ports::Port;
use crate::db::{networks, ports, subnets};
use crate::{Error, VnicType};

/// The facts about a network that a boot needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkFacts {
    /// Its id.
    pub id: NetworkId,
    /// Its name.
    pub name: String,
    /// The owning project.
    pub project: String,
    /// True if other projects may use it.
    pub shared: bool,
    /// True if it is external; guests are not attached to it automatically.
    pub external: bool,
    /// True if security groups apply there.
    pub has_port_security: bool,
    /// True if it has subnets, and so addresses.
    pub has_subnets: bool,
    /// Its `admin_state_up`.
    pub is_up: bool,
}

/// The facts about a port that a boot needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortFacts {
    /// Its id.
    pub id: PortId,
    /// The owning project.
    pub project: String,
    /// Its network.
    pub network: NetworkId,
    /// True if a device already uses it.
    pub in_use: bool,
    /// True if it has an address.
    pub has_address: bool,
    /// True if it has its own accelerator (`accelerator-direct`).
    pub accelerator: bool,
    /// The device profile of that accelerator.
    pub device_profile: Option<String>,
}

fn facts(network: &Network, has_subnets: bool) -> NetworkFacts {
    NetworkFacts {
        id: network.id,
        name: network.text("name").to_owned(),
        project: network.project.clone(),
        shared: network.flag("shared"),
        external: network.flag("router:external"),
        has_port_security: network.flag("port_security_enabled"),
        has_subnets,
        is_up: network.flag("admin_state_up"),
    }
}

/// Announces [`network`].
///
/// # Errors
/// Database errors; also for all functions below.
pub fn expect_network(tx: &mut Tx<'_>, id: NetworkId) -> Result<(), Error> {
    networks::expect(tx, id)?;
    Ok(subnets::expect_of_network(tx, id)?)
}

/// Announces [`available`].
pub fn expect_available(tx: &mut Tx<'_>, project: &str) -> Result<(), Error> {
    Ok(networks::expect_available(tx, project)?)
}

/// Announces [`port`].
pub fn expect_port(tx: &mut Tx<'_>, id: PortId) -> Result<(), Error> {
    Ok(ports::expect(tx, id)?)
}

/// Announces [`check_quota`] and [`is_near_quota`].
pub fn expect_quota(tx: &mut Tx<'_>, project: &str) -> Result<(), Error> {
    Ok(crate::db::quotas::expect(tx, project)?)
}

/// One network, of any project.
pub fn network(tx: &mut Tx<'_>, id: NetworkId) -> Result<Option<NetworkFacts>, Error> {
    let Some(network) = networks::find(tx, id)? else { return Ok(None) };
    let has_subnets = !subnets::of_network(tx, id)?.is_empty();
    Ok(Some(facts(&network, has_subnets)))
}

/// The networks that a project's servers can attach to: its own and shared ones. Another
/// project's external network is included only if it is also shared.
pub fn available(tx: &mut Tx<'_>, project: &str) -> Result<Vec<NetworkFacts>, Error> {
    let all = networks::available(tx, project)?;
    Ok(all.iter().map(|(network, has_subnets)| facts(network, *has_subnets)).collect())
}

/// One port, of any project.
pub fn port(tx: &mut Tx<'_>, id: PortId) -> Result<Option<PortFacts>, Error> {
    let Some(port) = ports::find(tx, id)? else { return Ok(None) };
    let record = &port.record;
    let profile = record.body.get("device_profile").and_then(Value::as_str);
    Ok(Some(PortFacts {
        id,
        project: record.project.clone(),
        network: port.network,
        in_use: !port.device_id.is_empty(),
        has_address: !port.addresses.is_empty(),
        accelerator: port.vnic_type == VnicType::AcceleratorDirect,
        device_profile: profile.map(str::to_owned),
    }))
}

/// Refuses more ports than the project's quota allows. Only for the transaction that creates them: it writes.
///
/// # Errors
/// 409 `OverQuota`.
pub fn check_quota(tx: &mut Tx<'_>, project: &str, more: i64) -> Result<(), Error> {
    quotas::check(tx, project, quotas::PORT, more)
}

/// Refuses more ports than the project's quota allows, without a write. Returns true if the transaction that creates them
/// must call [`check_quota`], because the project uses at least half of its quota.
///
/// # Errors
/// 409 `OverQuota`.
pub fn is_near_quota(tx: &mut Tx<'_>, project: &str, more: i64) -> Result<bool, Error> {
    quotas::is_near_limit_of_ports(tx, project, more)
}

/// Groups of a project by name or id; its default group if `names` is empty, created on demand.
///
/// # Errors
/// 404 if a group does not exist, 409 if a name is ambiguous.
pub fn groups_by_name(
    tx: &mut Tx<'_>,
    project: &str,
    names: &[String],
    now: Timestamp,
) -> Result<Vec<SecurityGroupId>, Error> {
    if names.is_empty() {
        return Ok(vec![groups::default_of(tx, project, now)?]);
    }
    groups::named(tx, project, names, now)
}

/// The result of [`set_groups`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupChange {
    /// The server has no ports.
    NoPorts,
    /// A port of the server cannot have the group, as it has no address or no port security. Nothing is changed.
    CannotApply,
    /// This number of ports changed.
    Done(usize),
}

/// Adds a security group to all ports of a server, or removes it from them. It is added to all of them or to none.
pub fn set_groups(
    tx: &mut Tx<'_>,
    server: ServerId,
    group: SecurityGroupId,
    add: bool,
    now: Timestamp,
) -> Result<GroupChange, Error> {
    crate::db::groups::touch(tx, group)?;
    let all = ports::of_server(tx, server)?;
    if all.is_empty() {
        return Ok(GroupChange::NoPorts);
    }
    let is_fit =
        |port: &Port| port.record.flag("port_security_enabled") && !port.addresses.is_empty();
    if add && !all.iter().all(is_fit) {
        return Ok(GroupChange::CannotApply);
    }
    let mut changed = 0;
    for mut port in all {
        let mut groups = port.record.texts("security_groups");
        let name = group.to_string();
        if groups.contains(&name) == add {
            continue;
        }
        if add {
            groups.push(name);
        } else {
            groups.retain(|other| *other != name);
        }
        let before = port.record.texts("security_groups");
        let mut body = crate::record::Body::new();
        body.insert("security_groups".into(), json!(groups));
        port.record.change(body, now);
        ports::update(tx, &port)?;
        crate::app::ports::record_change(tx, &port, &before)?;
        changed += 1;
    }
    Ok(GroupChange::Done(changed))
}
