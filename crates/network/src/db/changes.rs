//! Rows of `network_changes`, an outbox for hosts. A change that concerns hosts is recorded in
//! the transaction that makes it; the compute service consumes the rows and updates the hosts.
//! Redundant rows are harmless.

use kilonova_changes::Topic;
use kilonova_ids::{HostName, NetworkId, PortId, RouterId, SecurityGroupId, ServerId};
use kilonova_store::{Error, Tx, params, statements};

/// A change that concerns hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetworkChange {
    /// The rules of a security group.
    Rules(SecurityGroupId),
    /// The addresses of a security group's members.
    Members(SecurityGroupId),
    /// A port's attributes or addresses.
    Port(PortId),
    /// A network or one of its subnets.
    Network(NetworkId),
    /// A router, which may have been deleted since, or its ports or floating IPs.
    Router(RouterId),
}

statements! {
    /// Records one change.
    INSERT = "INSERT INTO network_changes (kind, id) VALUES (?1, ?2)";
    /// Records a change to each group of a port that is being deleted.
    INSERT_OF_PORT = "INSERT INTO network_changes (kind, id)
        SELECT 'members', group_id FROM port_groups WHERE port_id = ?1";
    /// Records a change to each group of the ports created for a server, which are being deleted.
    INSERT_OF_SERVER = "INSERT INTO network_changes (kind, id)
        SELECT 'members', g.group_id FROM port_groups g JOIN ports p ON p.id = g.port_id
        WHERE p.made_for = ?1";
    /// Records a change to each router on a host.
    INSERT_OF_HOST = "INSERT INTO network_changes (kind, id)
        SELECT 'router', router_id FROM router_places WHERE host = ?1";
    /// One recorded change, if there is any.
    ANY = "SELECT id FROM network_changes LIMIT 1";
    /// Removes and returns all changes.
    TAKE = "DELETE FROM network_changes RETURNING kind, id";
    /// Adds a port to a group.
    ADD_GROUP = "INSERT INTO port_groups (group_id, port_id) VALUES (?1, ?2)
        ON CONFLICT (group_id, port_id) DO NOTHING";
    /// Removes a port from its groups.
    CLEAR_GROUPS = "DELETE FROM port_groups WHERE port_id = ?1";
}

/// Records a change for delivery to hosts. The controllers deliver a user's change immediately. The
/// members of groups change with each boot; these changes are delivered together a little later.
pub(crate) fn record(tx: &mut Tx<'_>, change: NetworkChange) -> Result<(), Error> {
    let (kind, id) = match change {
        NetworkChange::Rules(id) => ("rules", id.to_string()),
        NetworkChange::Members(id) => ("members", id.to_string()),
        NetworkChange::Port(id) => ("port", id.to_string()),
        NetworkChange::Network(id) => ("network", id.to_string()),
        NetworkChange::Router(id) => ("router", id.to_string()),
    };
    tx.defer(INSERT, params![kind, id])?;
    match change {
        NetworkChange::Members(_) => Ok(()),
        NetworkChange::Rules(_)
        | NetworkChange::Port(_)
        | NetworkChange::Network(_)
        | NetworkChange::Router(_) => kilonova_changes::append(tx, Topic::Networks, "", 0),
    }
}

/// Records that a port is being deleted.
pub(crate) fn record_port_deletion(tx: &mut Tx<'_>, port: PortId) -> Result<(), Error> {
    tx.defer(INSERT_OF_PORT, params![port])
}

/// Records that the ports created for a server are being deleted.
pub(crate) fn record_server_deletion(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    tx.defer(INSERT_OF_SERVER, params![server])
}

/// Records a change to each router on a host.
pub(crate) fn record_routers(tx: &mut Tx<'_>, host: &HostName) -> Result<(), Error> {
    tx.defer(INSERT_OF_HOST, params![host])
}

/// True if a change awaits delivery.
pub(crate) fn any(tx: &mut Tx<'_>) -> Result<bool, Error> {
    Ok(tx.row(ANY, params![])?.is_some())
}

/// Removes and returns the recorded changes, without duplicates.
pub(crate) fn take(tx: &mut Tx<'_>) -> Result<Vec<NetworkChange>, Error> {
    let mut all = Vec::new();
    for row in tx.rows(TAKE, params![])? {
        all.push(match row.text("kind")? {
            "rules" => NetworkChange::Rules(row.id("id")?),
            "members" => NetworkChange::Members(row.id("id")?),
            "port" => NetworkChange::Port(row.id("id")?),
            "network" => NetworkChange::Network(row.id("id")?),
            "router" => NetworkChange::Router(row.id("id")?),
            other => return Err(Error::Shape(format!("network change {other}"))),
        });
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// Sets the groups of a new port.
pub(crate) fn add_groups(tx: &mut Tx<'_>, port: PortId, groups: &[String]) -> Result<(), Error> {
    for group in groups {
        tx.defer(ADD_GROUP, params![group.as_str(), port])?;
    }
    Ok(())
}

/// Replaces the groups of a port.
pub(crate) fn set_groups(tx: &mut Tx<'_>, port: PortId, groups: &[String]) -> Result<(), Error> {
    tx.defer(CLEAR_GROUPS, params![port])?;
    add_groups(tx, port, groups)
}
