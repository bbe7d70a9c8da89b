//! The rows from which the packet filters of hosts are built, and the servers that are affected
//! when these rows change.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_ids::{NetworkId, PortId, SecurityGroupId, ServerId};
use kilonova_store::{Error, Row, Tx, Value, listed, params, statements};

use super::{BATCH, parse, rows_in};
use crate::record::Body;

/// A port and its attributes.
#[derive(Debug)]
pub(crate) struct FilteredPort {
    pub id: PortId,
    pub body: Body,
}

/// A rule's group and attributes.
#[derive(Debug)]
pub(crate) struct FilterRuleRow {
    pub group: SecurityGroupId,
    pub body: Body,
}

/// An address of a port in a security group.
#[derive(Debug)]
pub(crate) struct Member {
    pub group: SecurityGroupId,
    pub address: String,
    /// The port's attributes, if it has allowed address pairs.
    pub body: Option<Body>,
}

/// The groups of servers' ports.
macro_rules! groups_of_servers {
    () => {
        "(SELECT m.group_id FROM ports o JOIN port_groups m ON m.port_id = o.id
            WHERE o.server_id IN ({}))"
    };
}

statements! {
    /// Groups with a rule whose remote group is one of these.
    REFERENCING = "SELECT DISTINCT security_group_id FROM security_group_rules
        WHERE remote_group_id IN ({})";
    /// Servers with a port in one of these groups.
    SERVERS_IN_GROUPS = "SELECT DISTINCT p.server_id FROM port_groups g
        JOIN ports p ON p.id = g.port_id
        WHERE g.group_id IN ({}) AND p.server_id IS NOT NULL";
    /// Ports of servers.
    PORTS = "SELECT id, body FROM ports WHERE server_id IN ({}) ORDER BY seq";
    /// Rules of the groups of servers' ports.
    RULES = concat!(
        "SELECT seq, security_group_id, body FROM security_group_rules WHERE security_group_id IN ",
        groups_of_servers!(),
        " ORDER BY seq"
    );
    /// Addresses of the members of the groups that those rules name as remote groups. Ports of routers keep their groups,
    /// but are not members. A scalar subquery excludes them, because PostgreSQL would turn NOT EXISTS into a join that
    /// reads all ports.
    MEMBERS = concat!(
        "SELECT g.group_id, a.address, CASE
            WHEN p.body LIKE '%\"allowed_address_pairs\":[]%' THEN NULL ELSE p.body END AS body
        FROM port_groups g JOIN ports p ON p.id = g.port_id
        JOIN port_addresses a ON a.port_id = p.id WHERE g.group_id IN (
            SELECT r.remote_group_id FROM security_group_rules r
            WHERE r.remote_group_id IS NOT NULL AND r.security_group_id IN ",
        groups_of_servers!(),
        ") AND (SELECT i.port_id FROM router_ports i WHERE i.port_id = p.id) IS NULL
        ORDER BY a.address"
    );
    /// The server of a port.
    SERVER_OF_PORT = "SELECT server_id FROM ports WHERE id = ?1 AND server_id IS NOT NULL";
    /// Servers on a network.
    SERVERS_ON_NETWORK = "SELECT DISTINCT server_id FROM ports WHERE network_id = ?1
        AND server_id IS NOT NULL";
}

fn servers(rows: &[Row]) -> Result<BTreeSet<ServerId>, Error> {
    rows.iter().map(|row| row.id("server_id")).collect()
}

/// Groups with a rule whose remote group is one of these.
pub(crate) fn referencing(
    tx: &mut Tx<'_>,
    groups: &BTreeSet<SecurityGroupId>,
) -> Result<BTreeSet<SecurityGroupId>, Error> {
    let rows = rows_in(tx, REFERENCING, groups.iter().copied())?;
    rows.iter().map(|row| row.id("security_group_id")).collect()
}

/// Servers with a port in one of these groups.
pub(crate) fn servers_in_groups(
    tx: &mut Tx<'_>,
    groups: &BTreeSet<SecurityGroupId>,
) -> Result<BTreeSet<ServerId>, Error> {
    servers(&rows_in(tx, SERVERS_IN_GROUPS, groups.iter().copied())?)
}

/// The server of a port, if it has one.
pub(crate) fn server_of_port(tx: &mut Tx<'_>, port: PortId) -> Result<BTreeSet<ServerId>, Error> {
    servers(&tx.rows(SERVER_OF_PORT, params![port])?)
}

/// Servers with a port on a network.
pub(crate) fn servers_on_network(
    tx: &mut Tx<'_>,
    network: NetworkId,
) -> Result<BTreeSet<ServerId>, Error> {
    servers(&tx.rows(SERVERS_ON_NETWORK, params![network])?)
}

/// The rows of the packet filters of servers.
#[derive(Debug, Default)]
pub(crate) struct FilterRows {
    /// The servers' ports.
    pub ports: Vec<FilteredPort>,
    /// The rules of the ports' groups, in the order of their creation.
    pub rules: Vec<FilterRuleRow>,
    /// The members of the rules' remote groups; with many servers, some are repeated.
    pub members: Vec<Member>,
}

/// The rows of the packet filters of servers, in one round trip.
pub(crate) fn of_servers(
    tx: &mut Tx<'_>,
    servers: &BTreeSet<ServerId>,
) -> Result<FilterRows, Error> {
    let ids: Vec<Value> = servers.iter().map(|id| (*id).into()).collect();
    let mut asked = Vec::new();
    for batch in ids.chunks(BATCH) {
        let mut ask = |sql: &str| tx.ask(&listed(sql, batch.len()), batch);
        asked.push((ask(PORTS)?, ask(RULES)?, ask(MEMBERS)?));
    }
    let mut found = FilterRows::default();
    let mut rules = BTreeMap::new();
    for (ports, of_ports, members) in asked {
        for row in tx.answer(ports)? {
            found.ports.push(FilteredPort { id: row.id("id")?, body: parse(row.text("body")?)? });
        }
        for row in tx.answer(of_ports)? {
            let group = row.id("security_group_id")?;
            let rule = FilterRuleRow { group, body: parse(row.text("body")?)? };
            rules.insert(row.int("seq")?, rule);
        }
        for row in tx.answer(members)? {
            found.members.push(Member {
                group: row.id("group_id")?,
                address: row.string("address")?,
                body: row.text_opt("body")?.map(parse).transpose()?,
            });
        }
    }
    found.rules = rules.into_values().collect();
    Ok(found)
}
