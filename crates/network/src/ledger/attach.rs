//! A server gets ports, moves with them, and gives them up.

use std::net::IpAddr;

use kilonova_ids::{ArqId, NetworkId, PortId, SecurityGroupId, ServerId};
use kilonova_store::Tx;
use serde_json::json;

use crate::Error;
use crate::app::{addresses::FixedIp, ports as app};
use crate::db::ports::{self as rows, Port};
use crate::error::{not_found, refused};
use crate::record::{Body, Record};

/// How a server is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nic {
    /// By a port that is made for it and goes with it.
    New {
        /// Where to.
        network: NetworkId,
        /// With this address.
        fixed_ip: Option<IpAddr>,
        /// Whether security groups apply there.
        secure: bool,
    },
    /// By a port that is there and stays when it goes.
    Existing(PortId),
}

/// A port for a server.
#[derive(Debug, Clone, Copy)]
pub struct Attach<'a> {
    /// The server.
    pub server: ServerId,
    /// Its project.
    pub project: &'a str,
    /// The host it is on, if it is on one.
    pub host: Option<&'a str>,
    /// `compute:<zone>`.
    pub owner: &'a str,
    /// Host name of the guest, for the port's name in DNS.
    pub hostname: &'a str,
    /// How.
    pub nic: Nic,
    /// What the guest is told of it.
    pub tag: Option<&'a str>,
    /// Place among the server's ports.
    pub ordinal: i64,
    /// Groups of a new port.
    pub groups: &'a [SecurityGroupId],
}

/// Makes the port or takes the one that is there.
///
/// # Errors
/// 404 for a port that has gone, 409 in Neutron's types when it is in use or there is no address.
pub fn attach(tx: &mut Tx<'_>, attach: &Attach<'_>, now: i64) -> Result<PortId, Error> {
    match attach.nic {
        Nic::New { network, fixed_ip, secure } => make(tx, attach, network, fixed_ip, secure, now),
        Nic::Existing(id) => take(tx, attach, id, now),
    }
}

fn make(
    tx: &mut Tx<'_>,
    attach: &Attach<'_>,
    network: NetworkId,
    fixed_ip: Option<IpAddr>,
    secure: bool,
    now: i64,
) -> Result<PortId, Error> {
    let groups: &[SecurityGroupId] = if secure { attach.groups } else { &[] };
    let mut body = app::defaults();
    set(&mut body, "security_groups", json!(groups));
    set(&mut body, "port_security_enabled", json!(secure));
    set(&mut body, "device_owner", json!(attach.owner));
    set(&mut body, "dns_name", json!(attach.hostname));
    let port = Port {
        record: Record::new(attach.project, body, now),
        network,
        mac: String::new(),
        device_id: attach.server.to_string(),
        host: attach.host.unwrap_or_default().to_owned(),
        server: Some(attach.server),
        made_for: Some(attach.server),
        ordinal: attach.ordinal,
        arq: None,
        pci_slot: None,
        tag: attach.tag.map(str::to_owned),
        addresses: Vec::new(),
    };
    let asked = fixed_ip.map(|address| [FixedIp { subnet: None, address: Some(address) }]);
    let port = app::insert(tx, port, true, asked.as_ref().map(<[_; 1]>::as_slice))?;
    Ok(port.record.id)
}

fn set(body: &mut Body, key: &str, value: serde_json::Value) {
    body.insert(key.to_owned(), value);
}

fn take(tx: &mut Tx<'_>, attach: &Attach<'_>, id: PortId, now: i64) -> Result<PortId, Error> {
    let mut port = rows::find(tx, id)?.ok_or_else(|| not_found("port", id))?;
    if !port.device_id.is_empty() {
        let words = format!("Port {id} is still in use.");
        return Err(refused(409, "PortInUse", words).into());
    }
    port.device_id = attach.server.to_string();
    port.server = Some(attach.server);
    port.host = attach.host.unwrap_or_default().to_owned();
    port.ordinal = attach.ordinal;
    port.tag = attach.tag.map(str::to_owned);
    let mut body = Body::new();
    set(&mut body, "device_owner", json!(attach.owner));
    if port.record.text("dns_name").is_empty() {
        set(&mut body, "dns_name", json!(attach.hostname));
    }
    port.record.change(body, now);
    rows::update(tx, &port)?;
    Ok(id)
}

/// The server is on that host now, or on none; its ports have no devices before [`set_device`].
///
/// # Errors
/// The database's; so for the functions below.
pub fn bind(tx: &mut Tx<'_>, server: ServerId, host: Option<&str>, now: i64) -> Result<(), Error> {
    Ok(rows::bind(tx, server, host, now)?)
}

/// The accelerator that a port of the server is, and its PCI address.
pub fn set_device(
    tx: &mut Tx<'_>,
    server: ServerId,
    port: PortId,
    arq: ArqId,
    slot: &str,
) -> Result<(), Error> {
    Ok(rows::set_device(tx, server, port, arq, slot)?)
}

/// The server is gone: ports that were made for it go with it, the others are nobody's.
pub fn leave(tx: &mut Tx<'_>, server: ServerId, now: i64) -> Result<(), Error> {
    Ok(rows::leave_server(tx, server, now)?)
}

/// One port of the server goes, or is nobody's.
pub fn detach(tx: &mut Tx<'_>, server: ServerId, id: PortId, now: i64) -> Result<(), Error> {
    let found = rows::find(tx, id)?.filter(|port| port.server == Some(server));
    let mut port = found.ok_or_else(|| not_found("port", id))?;
    if port.made_for.is_some() {
        return Ok(rows::delete(tx, id)?);
    }
    port.leave(now);
    Ok(rows::update(tx, &port)?)
}
