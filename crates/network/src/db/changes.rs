//! Rows of `network_changes`: what hosts have not been told of yet. Whoever changes something that
//! hosts have to know notes it in the same transaction; the compute service takes the notes away
//! and tells the hosts. A note more than needed does no harm.

use kilonova_ids::{NetworkId, PortId, SecurityGroupId, ServerId};
use kilonova_store::{Error, Tx, params, statements};

/// What hosts have to be told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// The rules of a group.
    Rules(SecurityGroupId),
    /// The addresses of a group's members.
    Members(SecurityGroupId),
    /// What is set on a port, or its addresses.
    Port(PortId),
    /// A network or one of its subnets.
    Network(NetworkId),
}

statements! {
    /// A note.
    NOTE = "INSERT INTO network_changes (kind, id) VALUES (?1, ?2)";
    /// A note for each group of a port that goes.
    NOTE_PORT = "INSERT INTO network_changes (kind, id)
        SELECT 'members', group_id FROM port_groups WHERE port_id = ?1";
    /// A note for each group of the ports that go with a server.
    NOTE_SERVER = "INSERT INTO network_changes (kind, id)
        SELECT 'members', g.group_id FROM port_groups g JOIN ports p ON p.id = g.port_id
        WHERE p.made_for = ?1";
    /// Whether there is one.
    ANY = "SELECT id FROM network_changes LIMIT 1";
    /// Takes all away that are there.
    TAKE = "DELETE FROM network_changes RETURNING kind, id";
    /// A port has a group.
    ADD_GROUP = "INSERT INTO port_groups (group_id, port_id) VALUES (?1, ?2)
        ON CONFLICT (group_id, port_id) DO NOTHING";
    /// A port has no groups.
    CLEAR_GROUPS = "DELETE FROM port_groups WHERE port_id = ?1";
}

pub(crate) fn note(tx: &mut Tx<'_>, change: Change) -> Result<(), Error> {
    let (kind, id) = match change {
        Change::Rules(id) => ("rules", id.to_string()),
        Change::Members(id) => ("members", id.to_string()),
        Change::Port(id) => ("port", id.to_string()),
        Change::Network(id) => ("network", id.to_string()),
    };
    tx.execute(NOTE, params![kind, id]).map(|_| ())
}

/// A port goes.
pub(crate) fn note_port(tx: &mut Tx<'_>, port: PortId) -> Result<(), Error> {
    tx.execute(NOTE_PORT, params![port]).map(|_| ())
}

/// The ports that were made for a server go.
pub(crate) fn note_server(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    tx.execute(NOTE_SERVER, params![server]).map(|_| ())
}

pub(crate) fn any(tx: &mut Tx<'_>) -> Result<bool, Error> {
    Ok(tx.row(ANY, params![])?.is_some())
}

/// What was noted, each once.
pub(crate) fn take(tx: &mut Tx<'_>) -> Result<Vec<Change>, Error> {
    let mut all = Vec::new();
    for row in tx.rows(TAKE, params![])? {
        all.push(match row.text(0)? {
            "rules" => Change::Rules(row.id(1)?),
            "members" => Change::Members(row.id(1)?),
            "port" => Change::Port(row.id(1)?),
            "network" => Change::Network(row.id(1)?),
            other => return Err(Error::Shape(format!("network change {other}"))),
        });
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// The groups of a new port.
pub(crate) fn add_groups(tx: &mut Tx<'_>, port: PortId, groups: &[String]) -> Result<(), Error> {
    for group in groups {
        tx.execute(ADD_GROUP, params![group.as_str(), port])?;
    }
    Ok(())
}

/// The groups of a port that had others.
pub(crate) fn set_groups(tx: &mut Tx<'_>, port: PortId, groups: &[String]) -> Result<(), Error> {
    tx.execute(CLEAR_GROUPS, params![port])?;
    add_groups(tx, port, groups)
}
