//! The typed rows of the journal. Only this file interprets their JSON.

use kilonova_compute_db::external_ports::{self, ExternalPort, ExternalServer};
use kilonova_ids::{HostName, PortId, SecurityGroupId, ServerId};
use kilonova_neutron::ResourceRequest;
use kilonova_store::Tx;
use serde::{Deserialize, Serialize};

use super::view::PortView;
use crate::Error;
use crate::ports::neutron::{Wanted, Wish};

/// The facts about a server that the calls send to Neutron.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ServerFacts {
    /// The availability zone.
    pub zone: String,
    /// The host name of the guest.
    pub hostname: String,
    /// The security groups of new ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<SecurityGroupId>,
}

/// The request for a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    /// The port.
    pub wish: Wish,
    /// The tag shown to the guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// The device profile of the port's accelerator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_profile: Option<String>,
    /// The resources that the port requests.
    #[serde(default, skip_serializing_if = "ResourceRequest::is_empty")]
    pub resources: ResourceRequest,
}

/// A connection of a server.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PortRow {
    pub ordinal: i64,
    pub port: Option<PortId>,
    pub is_supplied: bool,
    pub is_detaching: bool,
    pub is_plugged: bool,
    pub is_next_plugged: bool,
    pub wish: Wish,
    pub tag: Option<String>,
    pub device_profile: Option<String>,
    /// The resources that the port requested when it was added to the server.
    pub resources: ResourceRequest,
    pub view: Option<PortView>,
    pub next_view: Option<PortView>,
}

impl PortRow {
    /// The connection as Neutron must have it.
    pub(super) fn wanted(&self) -> Wanted {
        // Before its first view, a supplied port is checked again.
        let known = self.port.filter(|_| self.view.is_some());
        Wanted { wish: self.wish.clone(), known }
    }

    /// True if a live migration to a host waits until that host has plugged the port. If Neutron's agent there filters
    /// with iptables, the host plugs the port before the guest arrives; otherwise when the guest arrives.
    pub(super) fn is_awaited_on(&self, host: &HostName) -> bool {
        let is_hybrid = self.next_view.as_ref().is_some_and(|view| {
            view.host.as_ref() == Some(host) && view.interface.hybrid_plug().is_some()
        });
        is_hybrid && !self.is_detaching && !self.is_next_plugged
    }

    /// The resources that the port requested when it was last read.
    pub(super) fn requested(&self) -> &ResourceRequest {
        let seen = self.view.as_ref().and_then(|view| view.resources.as_ref());
        seen.unwrap_or(&self.resources)
    }
}

/// The ports of a server, in order.
pub(super) fn ports(tx: &mut Tx<'_>, server: ServerId) -> Result<Vec<PortRow>, Error> {
    external_ports::of_server(tx, server)?.into_iter().map(read).collect()
}

/// [`ports`] of several servers, grouped by server.
pub(super) fn ports_of(
    tx: &mut Tx<'_>,
    servers: &[ServerId],
) -> Result<Vec<(ServerId, PortRow)>, Error> {
    let rows = external_ports::of_servers(tx, servers)?;
    rows.into_iter().map(|row| Ok((row.server, read(row)?))).collect()
}

/// The facts about a server that the calls send to Neutron.
pub(super) fn facts(server: &ExternalServer) -> Result<ServerFacts, Error> {
    from_text("external_servers.body", &server.body)
}

fn read(row: ExternalPort) -> Result<PortRow, Error> {
    let request = from_text("external_ports.request", &row.request)?;
    let Request { wish, tag, device_profile, resources } = request;
    let view = |text: &Option<String>| -> Result<Option<PortView>, Error> {
        text.as_deref().map(|text| from_text("external_ports.view", text)).transpose()
    };
    Ok(PortRow {
        ordinal: row.ordinal,
        port: row.port,
        is_supplied: row.is_supplied,
        is_detaching: row.is_detaching,
        is_plugged: row.is_plugged,
        is_next_plugged: row.is_next_plugged,
        wish,
        tag,
        device_profile,
        resources,
        view: view(&row.view)?,
        next_view: view(&row.next_view)?,
    })
}

fn from_text<T: serde::de::DeserializeOwned>(what: &str, text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| shape(format!("{what}: {error}")))
}

/// Serializes a value to JSON.
pub(super) fn to_text(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| shape(error.to_string()))
}

fn shape(why: String) -> Error {
    kilonova_store::Error::Shape(why).into()
}
