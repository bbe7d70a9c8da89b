//! The ports of servers, as the compute service shows them and as hosts need them.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use kilonova_ids::{ArqId, HostName, NetworkId, PortId, SecurityGroupId, ServerId, SubnetId};
use kilonova_node_api::SixMode;
use kilonova_store::Tx;
use serde_json::Value as Json;

use crate::address::Cidr;
use crate::db::groups::{self, Group, Rule};
use crate::db::ports;
use crate::db::server_ports::{self, AddressRow, ServerPortRow};
use crate::record::Body;
use crate::{Error, VnicType};

/// An address of a port with its subnet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed {
    /// The address.
    pub address: IpAddr,
    /// Its subnet.
    pub subnet: SubnetId,
    /// Length of the subnet's prefix.
    pub prefix: u8,
    /// The gateway.
    pub gateway: Option<IpAddr>,
    /// Name servers.
    pub dns: Vec<IpAddr>,
    /// Host routes: destination and next hop.
    pub routes: Vec<(String, IpAddr)>,
    /// True if DHCP serves the subnet.
    pub dhcp: bool,
    /// The address of the DHCP server.
    pub dhcp_server: Option<IpAddr>,
    /// The IPv6 address mode of the subnet, if any.
    pub ipv6_mode: Option<SixMode>,
    /// The floating IPs that are associated with it.
    pub floating: Vec<IpAddr>,
}

/// A port of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerPort {
    /// The server.
    pub server: ServerId,
    /// The port's id.
    pub id: PortId,
    /// MAC address.
    pub mac: String,
    /// The host that it is bound to.
    pub host: Option<HostName>,
    /// The device tag that the guest's metadata shows.
    pub tag: Option<String>,
    /// True if it was created for the server.
    pub created_for_server: bool,
    /// The kind of its interface.
    pub vnic_type: VnicType,
    /// The device profile of its accelerator.
    pub device_profile: Option<String>,
    /// The accelerator request of its device.
    pub arq: Option<ArqId>,
    /// Its security groups.
    pub groups: Vec<String>,
    /// Its network.
    pub network: NetworkId,
    /// The name of the network.
    pub network_name: String,
    /// `flat` or `vlan`.
    pub network_type: String,
    /// The physical network.
    pub physical_network: String,
    /// The VLAN id.
    pub segmentation_id: Option<i64>,
    /// The MTU.
    pub mtu: i64,
    /// The MAC address of the DHCP server.
    pub dhcp_mac: Option<String>,
    /// Addresses, in order.
    pub fixed: Vec<Fixed>,
}

impl ServerPort {
    /// True if it has its own accelerator.
    pub fn is_accelerator(&self) -> bool {
        self.vnic_type == VnicType::AcceleratorDirect && self.device_profile.is_some()
    }
}

/// The ports of a server, in order.
///
/// # Errors
/// Database errors; also for all functions below.
pub fn of_server(tx: &mut Tx<'_>, server: ServerId) -> Result<Vec<ServerPort>, Error> {
    of_servers(tx, &[server])
}

/// Servers with an address that contains this text.
pub fn at_address(tx: &mut Tx<'_>, text: &str) -> Result<HashSet<ServerId>, Error> {
    let text = text.to_lowercase();
    if !text.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, '.' | ':')) {
        return Ok(HashSet::new());
    }
    Ok(ports::servers_at(tx, &text)?)
}

/// The ports of servers, grouped by server and in each server's order.
pub fn of_servers(tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<Vec<ServerPort>, Error> {
    Ok(server_ports::of_servers(tx, servers)?.into_iter().map(port).collect())
}

fn text(body: &Body, key: &str) -> Option<String> {
    body.get(key).and_then(Json::as_str).map(str::to_owned)
}

fn port(row: ServerPortRow) -> ServerPort {
    let (own, network) = (&row.body, &row.network_body);
    let groups = own.get("security_groups").and_then(Json::as_array).into_iter().flatten();
    ServerPort {
        server: row.server,
        id: row.id,
        mac: row.mac,
        host: row.host,
        tag: row.tag,
        created_for_server: row.made_for.is_some(),
        vnic_type: row.vnic_type,
        device_profile: text(own, "device_profile"),
        arq: row.arq,
        groups: groups.filter_map(|id| id.as_str().map(str::to_owned)).collect(),
        network: row.network,
        network_name: text(network, "name").unwrap_or_default(),
        network_type: text(network, "provider:network_type").unwrap_or_default(),
        physical_network: text(network, "provider:physical_network").unwrap_or_default(),
        segmentation_id: network.get("provider:segmentation_id").and_then(Json::as_i64),
        mtu: network.get("mtu").and_then(Json::as_i64).unwrap_or(1500),
        dhcp_mac: row.dhcp_mac,
        fixed: row.addresses.iter().map(fixed).collect(),
    }
}

fn fixed(row: &AddressRow) -> Fixed {
    let subnet = &row.subnet_body;
    let ip = |value: &Json| value.as_str().and_then(|text| text.parse::<IpAddr>().ok());
    let list = |key: &str| subnet.get(key).and_then(Json::as_array).into_iter().flatten();
    Fixed {
        address: row.address,
        subnet: row.subnet,
        prefix: text(subnet, "cidr").and_then(|cidr| Cidr::parse(&cidr)).map_or(0, |c| c.prefix),
        gateway: subnet.get("gateway_ip").and_then(ip),
        dns: list("dns_nameservers").filter_map(ip).collect(),
        routes: list("host_routes").filter_map(super::route).collect(),
        dhcp_server: row.dhcp_server,
        ipv6_mode: text(subnet, "ipv6_address_mode").and_then(|mode| SixMode::parse(&mode)),
        floating: row.floating.clone(),
        dhcp: subnet.get("enable_dhcp").and_then(Json::as_bool).unwrap_or(true),
    }
}

/// A security group without its rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupFacts {
    /// Its id.
    pub id: SecurityGroupId,
    /// Its name.
    pub name: String,
    /// Its description.
    pub description: String,
    /// The owning project.
    pub project: String,
}

/// Security groups by id.
pub fn group_views(tx: &mut Tx<'_>, ids: &[String]) -> Result<Vec<GroupFacts>, Error> {
    Ok(groups::by_ids(tx, ids)?.into_iter().map(group_facts).collect())
}

/// The security groups of a project, or of all projects, each with the JSON form of its rules.
pub fn project_groups(
    tx: &mut Tx<'_>,
    project: Option<&str>,
) -> Result<Vec<(GroupFacts, Vec<Json>)>, Error> {
    let groups = groups::list(tx, project)?;
    let mut rules: HashMap<SecurityGroupId, Vec<Json>> = HashMap::new();
    for rule in groups::list_rules(tx, project)? {
        rules.entry(rule.group).or_default().push(rule_view(rule));
    }
    let with_rules = |group: Group| {
        let rules = rules.remove(&group.id).unwrap_or_default();
        (group_facts(group), rules)
    };
    Ok(groups.into_iter().map(with_rules).collect())
}

/// A security group with the JSON form of its rules.
pub fn group_with_rules(
    tx: &mut Tx<'_>,
    id: SecurityGroupId,
) -> Result<Option<(GroupFacts, Vec<Json>)>, Error> {
    let Some(group) = groups::find(tx, id)? else { return Ok(None) };
    let rules = groups::rules_of(tx, id)?.into_iter().map(rule_view).collect();
    Ok(Some((group_facts(group), rules)))
}

fn rule_view(rule: Rule) -> Json {
    let mut view = rule.record.body;
    view.insert("id".to_owned(), Json::String(rule.record.id.to_string()));
    Json::Object(view)
}

fn group_facts(group: Group) -> GroupFacts {
    GroupFacts {
        id: group.id,
        name: group.text("name").to_owned(),
        description: group.text("description").to_owned(),
        project: group.project,
    }
}

/// Announces [`of_servers`] and [`group_names`].
pub fn expect_of_servers(tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<(), Error> {
    server_ports::expect_of_servers(tx, servers)?;
    Ok(groups::expect_of_servers(tx, servers)?)
}

/// Names of the security groups of servers' ports, by id.
pub fn group_names(
    tx: &mut Tx<'_>,
    servers: &[ServerId],
) -> Result<HashMap<String, String>, Error> {
    let groups = groups::of_servers(tx, servers)?.into_iter().map(group_facts);
    Ok(groups.map(|group| (group.id.to_string(), group.name)).collect())
}
