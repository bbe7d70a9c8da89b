//! Attaching a server's ports, binding them to its host, and detaching them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use jiff::Timestamp;
use kilonova_ids::{ArqId, HostName, NetworkId, PortId, SecurityGroupId, ServerId};
use kilonova_store::{Asked, Tx};
use serde_json::json;

use crate::app::addresses::{FixedIp, Pending};
use crate::app::{groups as group_app, ports as app};
use crate::db::groups;
use crate::db::ports::{self as rows, Port};
use crate::db::subnets::{self, Subnet};
use crate::error::{not_found, refused};
use crate::record::{Body, Record};
use crate::{Error, VnicType};
use kilonova_wire::refusal::Kind;

/// The port to attach to a server: new or existing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortSource {
    /// A port that is created for the server and deleted with it.
    New {
        /// The network.
        network: NetworkId,
        /// The requested address.
        fixed_ip: Option<IpAddr>,
        /// True if security groups apply to the port.
        has_port_security: bool,
    },
    /// An existing port, which outlives the server.
    Existing(PortId),
}

/// A port to attach to a server.
#[derive(Debug, Clone, Copy)]
pub struct Attach<'a> {
    /// The server.
    pub server: ServerId,
    /// Its project.
    pub project: &'a str,
    /// The server's host, if it has one.
    pub host: Option<&'a HostName>,
    /// The port's `device_owner`: `compute:<zone>`.
    pub owner: &'a str,
    /// Host name of the guest, used for the port's DNS name.
    pub hostname: &'a str,
    /// The new or existing port.
    pub source: PortSource,
    /// The device tag for the guest's metadata.
    pub tag: Option<&'a str>,
    /// Position among the server's ports.
    pub ordinal: i64,
    /// Security groups of a new port.
    pub groups: &'a [SecurityGroupId],
}

/// The rows that new ports of a project need. A transaction asks for them before its first write, so that they share a
/// round trip with other statements.
#[derive(Default)]
pub struct NewPorts {
    asked_default: Option<Asked>,
    asked_subnets: Vec<(NetworkId, Asked)>,
    default: Option<SecurityGroupId>,
    subnets: HashMap<NetworkId, Vec<Subnet>>,
}

impl NewPorts {
    /// Asks for the subnets of these networks, and for the project's default group if the ports need it.
    ///
    /// # Errors
    /// Database errors; also for [`NewPorts::default_group`].
    pub fn ask(
        tx: &mut Tx<'_>,
        project: &str,
        with_default: bool,
        networks: impl IntoIterator<Item = NetworkId>,
    ) -> Result<Self, Error> {
        let mut new = Self::default();
        if with_default {
            new.asked_default = Some(groups::ask_default_of(tx, project)?);
        }
        for network in networks.into_iter().collect::<BTreeSet<_>>() {
            new.asked_subnets.push((network, subnets::ask_of_network(tx, network)?));
        }
        Ok(new)
    }

    /// The project's default group, which is created if it is missing.
    pub fn default_group(
        &mut self,
        tx: &mut Tx<'_>,
        project: &str,
        now: Timestamp,
    ) -> Result<SecurityGroupId, Error> {
        let asked = self.asked_default.take();
        let found = match (self.default, asked) {
            (Some(id), _) => Some(id),
            (None, Some(asked)) => groups::found_default(tx, asked)?,
            (None, None) => groups::default_of(tx, project)?,
        };
        let id = match found {
            Some(id) => id,
            None => group_app::create_default(tx, project, now)?,
        };
        self.default = Some(id);
        Ok(id)
    }

    /// The subnets of a network. Their cursors may be older than this transaction's own allocations.
    fn subnets(&mut self, tx: &mut Tx<'_>, network: NetworkId) -> Result<&[Subnet], Error> {
        for (network, asked) in std::mem::take(&mut self.asked_subnets) {
            self.subnets.insert(network, subnets::found(tx, asked)?);
        }
        Ok(match self.subnets.entry(network) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(subnets::of_network(tx, network)?),
        })
    }
}

/// The addresses of a new port, which may turn out to be in use.
#[must_use = "an address may be in use"]
pub struct PendingAddresses(Option<Pending>);

impl PendingAddresses {
    /// Checks the addresses. Call it after a statement whose answer is needed anyway.
    ///
    /// # Errors
    /// 409 if no address is free.
    pub fn check(self, tx: &mut Tx<'_>) -> Result<(), Error> {
        self.0.map_or(Ok(()), |pending| pending.check(tx))
    }
}

/// Creates a port, or attaches an existing one.
///
/// # Errors
/// 404 if the port does not exist; 409 with Neutron's types if it is in use or no address is free.
pub fn attach(
    tx: &mut Tx<'_>,
    attach: &Attach<'_>,
    new: &mut NewPorts,
    now: Timestamp,
) -> Result<(PortId, PendingAddresses), Error> {
    match attach.source {
        PortSource::New { network, fixed_ip, has_port_security } => {
            let subnets = new.subnets(tx, network)?;
            create(tx, attach, network, subnets, fixed_ip, has_port_security, now)
        }
        PortSource::Existing(id) => {
            let id = attach_existing(tx, attach, id, now)?;
            Ok((id, PendingAddresses(None)))
        }
    }
}

fn create(
    tx: &mut Tx<'_>,
    attach: &Attach<'_>,
    network: NetworkId,
    subnets: &[Subnet],
    fixed_ip: Option<IpAddr>,
    has_port_security: bool,
    now: Timestamp,
) -> Result<(PortId, PendingAddresses), Error> {
    let groups: &[SecurityGroupId] = if has_port_security { attach.groups } else { &[] };
    let mut body = app::defaults();
    set(&mut body, "security_groups", json!(groups));
    set(&mut body, "port_security_enabled", json!(has_port_security));
    set(&mut body, "device_owner", json!(attach.owner));
    set(&mut body, "dns_name", json!(attach.hostname));
    let port = Port {
        record: Record::new(attach.project, body, now),
        network,
        mac: String::new(),
        device_id: attach.server.to_string(),
        host: attach.host.cloned(),
        vnic_type: VnicType::default(),
        server: Some(attach.server),
        made_for: Some(attach.server),
        ordinal: attach.ordinal,
        arq: None,
        pci_slot: None,
        tag: attach.tag.map(str::to_owned),
        addresses: Vec::new(),
    };
    let requested = fixed_ip.map(|address| [FixedIp { subnet: None, address: Some(address) }]);
    let requested = requested.as_ref().map(<[_; 1]>::as_slice);
    let (port, pending) = app::begin_insert(tx, port, true, subnets, requested)?;
    Ok((port.record.id, PendingAddresses(Some(pending))))
}

fn set(body: &mut Body, key: &str, value: serde_json::Value) {
    body.insert(key.to_owned(), value);
}

fn attach_existing(
    tx: &mut Tx<'_>,
    attach: &Attach<'_>,
    id: PortId,
    now: Timestamp,
) -> Result<PortId, Error> {
    let mut port = rows::find(tx, id)?.ok_or_else(|| not_found("port", id))?;
    if !port.device_id.is_empty() {
        let message = format!("Port {id} is still in use.");
        return Err(refused(Kind::Conflict, "PortInUse", message).into());
    }
    port.device_id = attach.server.to_string();
    port.server = Some(attach.server);
    port.host = attach.host.cloned();
    port.ordinal = attach.ordinal;
    port.tag = attach.tag.map(str::to_owned);
    let mut body = Body::new();
    set(&mut body, "device_owner", json!(attach.owner));
    if port.record.text("dns_name").is_empty() {
        set(&mut body, "dns_name", json!(attach.hostname));
    }
    port.record.change(body, now);
    rows::defer_update(tx, &port)?;
    Ok(id)
}

/// Binds the server's ports to a host, or unbinds them. They have no devices until [`set_device`].
///
/// # Errors
/// Database errors; also for the functions below.
pub fn bind(
    tx: &mut Tx<'_>,
    server: ServerId,
    host: Option<&HostName>,
    now: Timestamp,
) -> Result<(), Error> {
    Ok(rows::bind(tx, server, host, now)?)
}

/// Records the accelerator request and the PCI address of a port's device.
pub fn set_device(
    tx: &mut Tx<'_>,
    server: ServerId,
    port: PortId,
    arq: ArqId,
    slot: &str,
) -> Result<(), Error> {
    Ok(rows::set_device(tx, server, port, arq, slot)?)
}

/// Deletes the ports that were created for a server, and detaches its other ports.
pub fn detach_all(tx: &mut Tx<'_>, server: ServerId, now: Timestamp) -> Result<(), Error> {
    Ok(rows::detach_server(tx, server, now)?)
}

/// Deletes or detaches one port of the server.
pub fn detach(tx: &mut Tx<'_>, server: ServerId, id: PortId, now: Timestamp) -> Result<(), Error> {
    let found = rows::find(tx, id)?.filter(|port| port.server == Some(server));
    let mut port = found.ok_or_else(|| not_found("port", id))?;
    if port.made_for.is_some() {
        return Ok(rows::delete(tx, id, now)?);
    }
    port.detach(now);
    Ok(rows::defer_update(tx, &port)?)
}
