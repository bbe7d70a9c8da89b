//! The ports of servers with their networks, addresses and subnets, read by one query.

use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use kilonova_ids::{ArqId, HostName, NetworkId, PortId, ServerId, SubnetId};
use kilonova_store::{Error, Row, Tx, statements};

use super::ports::bound_host;
use super::{expect_in, parse, rows_in};
use crate::VnicType;
use crate::record::Body;

/// A port of a server.
#[derive(Debug)]
pub(crate) struct ServerPortRow {
    pub server: ServerId,
    pub id: PortId,
    pub mac: String,
    pub host: Option<HostName>,
    pub vnic_type: VnicType,
    pub tag: Option<String>,
    pub made_for: Option<ServerId>,
    pub arq: Option<ArqId>,
    pub body: Body,
    pub network: NetworkId,
    pub network_body: Rc<Body>,
    /// The MAC address of the network's DHCP port.
    pub dhcp_mac: Option<String>,
    /// The addresses, in the port's order.
    pub addresses: Vec<AddressRow>,
}

/// An address of a port with its subnet.
#[derive(Debug)]
pub(crate) struct AddressRow {
    pub address: IpAddr,
    pub subnet: SubnetId,
    pub subnet_body: Rc<Body>,
    /// The address of the network's DHCP port on the subnet.
    pub dhcp_server: Option<IpAddr>,
    /// The floating IPs that are associated with it.
    pub floating: Vec<IpAddr>,
}

statements! {
    /// Ports of servers with networks, addresses and subnets.
    OF_SERVERS = "SELECT p.server_id, p.id AS port_id, p.mac, p.host, p.tag, p.made_for, p.arq_id,
            p.body AS port_body, n.id AS network_id, n.body AS network_body, a.address,
            s.id AS subnet_id, s.body AS subnet_body, d.mac AS dhcp_mac, b.address AS dhcp_address,
            f.address AS floating
        FROM ports p
        JOIN networks n ON n.id = p.network_id
        LEFT JOIN port_addresses a ON a.port_id = p.id
        LEFT JOIN subnets s ON s.id = a.subnet_id
        LEFT JOIN ports d ON d.id = n.dhcp_port
        LEFT JOIN port_addresses b ON b.port_id = d.id AND b.subnet_id = s.id
        LEFT JOIN floating_ips f ON f.port_id = p.id AND f.fixed_address = a.address
        WHERE p.server_id IN ({}) ORDER BY p.server_id, p.ordinal, p.seq, a.ordinal, f.seq";
}

/// The bodies of networks and subnets, each parsed once.
#[derive(Default)]
struct Bodies(HashMap<String, Rc<Body>>);

impl Bodies {
    fn get(&mut self, row: &Row, id: &str, body: &str) -> Result<Rc<Body>, Error> {
        let id = row.text(id)?;
        if let Some(known) = self.0.get(id) {
            return Ok(Rc::clone(known));
        }
        let body = Rc::new(parse(row.text(body)?)?);
        self.0.insert(id.to_owned(), Rc::clone(&body));
        Ok(body)
    }
}

/// Announces [`of_servers`].
pub(crate) fn expect_of_servers(tx: &mut Tx<'_>, servers: &[ServerId]) -> Result<(), Error> {
    expect_in(tx, OF_SERVERS, servers.iter().copied())
}

/// The ports of servers, grouped by server and in each server's order.
pub(crate) fn of_servers(
    tx: &mut Tx<'_>,
    servers: &[ServerId],
) -> Result<Vec<ServerPortRow>, Error> {
    let mut ports: Vec<ServerPortRow> = Vec::new();
    let mut bodies = Bodies::default();
    for row in rows_in(tx, OF_SERVERS, servers.iter().copied())? {
        let id: PortId = row.id("port_id")?;
        if ports.last().is_none_or(|last| last.id != id) {
            ports.push(port(&row, &mut bodies)?);
        }
        if let (Some(port), Some(text)) = (ports.last_mut(), row.text_opt("address")?) {
            let new = address(&row, text, &mut bodies)?;
            let floating = row.text_opt("floating")?.map(ip).transpose()?;
            // An address with several floating IPs has one row for each.
            let fixed = match port.addresses.pop() {
                Some(last) if last.address == new.address && last.subnet == new.subnet => last,
                Some(other) => {
                    port.addresses.push(other);
                    new
                }
                None => new,
            };
            port.addresses.push(fixed);
            if let Some(last) = port.addresses.last_mut() {
                last.floating.extend(floating);
            }
        }
    }
    Ok(ports)
}

fn port(row: &Row, bodies: &mut Bodies) -> Result<ServerPortRow, Error> {
    let body = parse(row.text("port_body")?)?;
    Ok(ServerPortRow {
        vnic_type: VnicType::of(&body)?,
        server: row.id("server_id")?,
        id: row.id("port_id")?,
        mac: row.string("mac")?,
        host: bound_host(row)?,
        tag: row.string_opt("tag")?,
        made_for: row.id_opt("made_for")?,
        arq: row.id_opt("arq_id")?,
        body,
        network: row.id("network_id")?,
        network_body: bodies.get(row, "network_id", "network_body")?,
        dhcp_mac: row.string_opt("dhcp_mac")?,
        addresses: Vec::new(),
    })
}

fn address(row: &Row, text: &str, bodies: &mut Bodies) -> Result<AddressRow, Error> {
    Ok(AddressRow {
        address: ip(text)?,
        subnet: row.id("subnet_id")?,
        subnet_body: bodies.get(row, "subnet_id", "subnet_body")?,
        dhcp_server: row.text_opt("dhcp_address")?.map(ip).transpose()?,
        floating: Vec::new(),
    })
}

fn ip(text: &str) -> Result<IpAddr, Error> {
    text.parse().map_err(|_| Error::Shape(format!("address {text}")))
}
