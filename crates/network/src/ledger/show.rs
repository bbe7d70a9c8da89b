//! The ports of servers as compute shows them and as a host needs them, read by one query.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use kilonova_ids::{ArqId, NetworkId, PortId, SecurityGroupId, ServerId, SubnetId};
use kilonova_store::{Row, Tx, Value, listed, params, statements};
use serde_json::Value as Json;

use crate::Error;
use crate::address::Cidr;
use crate::db;
use crate::record::Body;

statements! {
    /// Ports of servers with networks, addresses and subnets.
    OF_SERVERS = "SELECT p.server_id, p.id, p.mac, p.host, p.tag, p.made_for, p.arq_id, p.body,
             n.id, n.body, a.address, s.id, s.body, d.mac, b.address FROM ports p
             JOIN networks n ON n.id = p.network_id
             LEFT JOIN port_addresses a ON a.port_id = p.id
             LEFT JOIN subnets s ON s.id = a.subnet_id
             LEFT JOIN ports d ON d.id = n.dhcp_port
             LEFT JOIN port_addresses b ON b.port_id = d.id AND b.subnet_id = s.id
             WHERE p.server_id IN ({}) ORDER BY p.server_id, p.ordinal, p.seq, a.ordinal";
    /// Security groups by id.
    GROUPS = "SELECT id, body, project_id FROM security_groups WHERE id IN ({}) ORDER BY seq";
}

/// Servers per query.
pub(super) const MOST: usize = 100;

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
    /// Destination and next hop.
    pub routes: Vec<(String, IpAddr)>,
    /// True if DHCP serves the subnet.
    pub dhcp: bool,
    /// The address of the DHCP server.
    pub dhcp_server: Option<IpAddr>,
}

/// A port of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerPort {
    /// The server.
    pub server: ServerId,
    /// Its id.
    pub id: PortId,
    /// MAC address.
    pub mac: String,
    /// The host that it is bound to; empty if unbound.
    pub host: String,
    /// The device tag that the guest's metadata shows.
    pub tag: Option<String>,
    /// True if it was created for the server.
    pub made: bool,
    /// `normal`, `accelerator-direct`, …
    pub vnic_type: String,
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
        self.vnic_type == "accelerator-direct" && self.device_profile.is_some()
    }
}

/// The ports of a server, in order.
///
/// # Errors
/// Database errors; so for all functions here.
pub fn of_server(tx: &mut Tx<'_>, server: ServerId) -> Result<Vec<ServerPort>, Error> {
    of_servers(tx, &[server])
}

/// Servers with an address that contains this text.
pub fn at_address(tx: &mut Tx<'_>, text: &str) -> Result<HashSet<ServerId>, Error> {
    let text = text.to_lowercase();
    let plain = text.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, '.' | ':'));
    if !plain {
        return Ok(HashSet::new());
    }
    let rows = tx.rows(db::ports::SERVERS_AT, params![format!("%{text}%")])?;
    Ok(rows.iter().map(|row| row.id(0)).collect::<Result<_, _>>()?)
}

/// The ports of servers, grouped by server and in order.
pub fn of_servers(tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<Vec<ServerPort>, Error> {
    let mut ports: Vec<ServerPort> = Vec::new();
    let mut read: HashMap<String, Body> = HashMap::new();
    for some in servers.chunks(MOST) {
        let sql = listed(OF_SERVERS, some.len());
        let values: Vec<Value> = some.iter().map(|id| Value::from(*id)).collect();
        for row in tx.rows(&sql, &values)? {
            let id: PortId = row.id(1)?;
            if ports.last().is_none_or(|last| last.id != id) {
                ports.push(port(&row, &mut read)?);
            }
            if let (Some(port), Some(address)) = (ports.last_mut(), row.text_opt(10)?) {
                port.fixed.push(fixed(&row, address, &mut read)?);
            }
        }
    }
    Ok(ports)
}

pub(super) fn shape(what: impl std::fmt::Display) -> Error {
    Error::Store(kilonova_store::Error::Shape(what.to_string()))
}

fn body<'a>(row: &Row, at: usize, read: &'a mut HashMap<String, Body>) -> Result<&'a Body, Error> {
    let id = row.string(at)?;
    if !read.contains_key(&id) {
        let body = serde_json::from_str(row.text(at + 1)?).map_err(shape)?;
        read.insert(id.clone(), body);
    }
    read.get(&id).ok_or_else(|| shape("body"))
}

fn text(body: &Body, key: &str) -> Option<String> {
    body.get(key).and_then(Json::as_str).map(str::to_owned)
}

fn port(row: &Row, read: &mut HashMap<String, Body>) -> Result<ServerPort, Error> {
    let own: Body = serde_json::from_str(row.text(7)?).map_err(shape)?;
    let groups = own.get("security_groups").and_then(Json::as_array);
    let groups =
        groups.into_iter().flatten().filter_map(|id| id.as_str().map(str::to_owned)).collect();
    let network = body(row, 8, read)?;
    Ok(ServerPort {
        server: row.id(0)?,
        id: row.id(1)?,
        mac: row.string(2)?,
        host: row.string(3)?,
        tag: row.string_opt(4)?,
        made: row.text_opt(5)?.is_some(),
        vnic_type: text(&own, "binding:vnic_type").unwrap_or_default(),
        device_profile: text(&own, "device_profile"),
        arq: row.id_opt(6)?,
        groups,
        network: row.id(8)?,
        network_name: text(network, "name").unwrap_or_default(),
        network_type: text(network, "provider:network_type").unwrap_or_default(),
        physical_network: text(network, "provider:physical_network").unwrap_or_default(),
        segmentation_id: network.get("provider:segmentation_id").and_then(Json::as_i64),
        mtu: network.get("mtu").and_then(Json::as_i64).unwrap_or(1500),
        dhcp_mac: row.string_opt(13)?,
        fixed: Vec::new(),
    })
}

fn fixed(row: &Row, address: &str, read: &mut HashMap<String, Body>) -> Result<Fixed, Error> {
    let subnet = body(row, 11, read)?;
    let ip = |value: &Json| value.as_str().and_then(|text| text.parse::<IpAddr>().ok());
    let list = |key: &str| subnet.get(key).and_then(Json::as_array).into_iter().flatten();
    let route =
        |route: &Json| Some((route["destination"].as_str()?.to_owned(), ip(&route["nexthop"])?));
    Ok(Fixed {
        address: address.parse().map_err(shape)?,
        subnet: row.id(11)?,
        prefix: text(subnet, "cidr").and_then(|cidr| Cidr::parse(&cidr)).map_or(0, |c| c.prefix),
        gateway: subnet.get("gateway_ip").and_then(ip),
        dns: list("dns_nameservers").filter_map(ip).collect(),
        routes: list("host_routes").filter_map(route).collect(),
        dhcp_server: row.text_opt(14)?.and_then(|text| text.parse().ok()),
        dhcp: subnet.get("enable_dhcp").and_then(Json::as_bool).unwrap_or(true),
    })
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
    let mut found = Vec::new();
    for some in ids.chunks(MOST) {
        let sql = listed(GROUPS, some.len());
        let values: Vec<Value> = some.iter().map(Value::from).collect();
        for row in tx.rows(&sql, &values)? {
            let body: Body = serde_json::from_str(row.text(1)?).map_err(shape)?;
            found.push(GroupFacts {
                id: row.id(0)?,
                name: text(&body, "name").unwrap_or_default(),
                description: text(&body, "description").unwrap_or_default(),
                project: row.string(2)?,
            });
        }
    }
    Ok(found)
}

/// Names of security groups by id.
pub fn group_names(tx: &mut Tx<'_>, ids: &[String]) -> Result<HashMap<String, String>, Error> {
    let groups = group_views(tx, ids)?;
    Ok(groups.into_iter().map(|group| (group.id.to_string(), group.name)).collect())
}
