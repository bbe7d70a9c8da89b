//! The ports of servers with the names of their security groups, as views need them.

use std::collections::HashMap;

use kilonova_compute_db::servers::Server;
use kilonova_ids::ServerId;
use kilonova_network::ledger::ServerPort;
use kilonova_store::Tx;

use super::networks::Networks;
use crate::Error;

/// The ports of the servers shown.
#[derive(Debug, Clone, Default)]
pub struct Connections {
    ports: HashMap<ServerId, Vec<ServerPort>>,
    groups: HashMap<String, String>,
}

/// Reads the ports of servers; reads nothing for servers without ports.
///
/// # Errors
/// Store errors only.
pub fn connections<'a>(
    tx: &mut Tx<'_>,
    networks: &dyn Networks,
    servers: impl IntoIterator<Item = &'a Server>,
) -> Result<Connections, Error> {
    let of = |server: &Server| server.spec.networked && server.deleted_at.is_none();
    let ids: Vec<ServerId> =
        servers.into_iter().filter(|server| of(server)).map(|server| server.id).collect();
    let mut found = Connections::default();
    if ids.is_empty() {
        return Ok(found);
    }
    networks.expect_ports(tx, &ids)?;
    for port in networks.ports(tx, &ids)? {
        found.ports.entry(port.server).or_default().push(port);
    }
    found.groups = networks.group_names(tx, &ids)?;
    Ok(found)
}

/// The names of the security groups of a server's ports, in the order of the ports.
///
/// # Errors
/// Store errors only.
pub fn security_groups(
    tx: &mut Tx<'_>,
    networks: &dyn Networks,
    server: ServerId,
) -> Result<Vec<String>, Error> {
    let bound = networks.ports(tx, &[server])?;
    group_names(tx, networks, server, &bound)
}

/// [`security_groups`] of a server with these ports.
///
/// # Errors
/// Store errors only.
pub(crate) fn group_names(
    tx: &mut Tx<'_>,
    networks: &dyn Networks,
    server: ServerId,
    bound: &[ServerPort],
) -> Result<Vec<String>, Error> {
    let mut ids: Vec<&String> = Vec::new();
    for group in bound.iter().flat_map(|port| &port.groups) {
        if !ids.contains(&group) {
            ids.push(group);
        }
    }
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let names = networks.group_names(tx, &[server])?;
    Ok(ids.into_iter().filter_map(|id| names.get(id).cloned()).collect())
}

impl Connections {
    /// The ports of a server, in order.
    pub fn of(&self, server: ServerId) -> &[ServerPort] {
        self.ports.get(&server).map(Vec::as_slice).unwrap_or_default()
    }

    /// Names of the security groups on a server's ports; `None` for a server without ports.
    pub fn groups(&self, server: ServerId) -> Option<Vec<&str>> {
        let ports = self.of(server);
        let mut names: Vec<&str> = ports
            .iter()
            .flat_map(|port| &port.groups)
            .filter_map(|id| self.groups.get(id).map(String::as_str))
            .collect();
        names.sort_unstable();
        names.dedup();
        (!names.is_empty()).then_some(names)
    }

    /// Ids of the groups on a server's ports.
    pub fn group_ids(&self, server: ServerId) -> Vec<String> {
        let mut ids: Vec<String> =
            self.of(server).iter().flat_map(|port| port.groups.iter().cloned()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}
