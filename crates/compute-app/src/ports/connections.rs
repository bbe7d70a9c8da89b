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
