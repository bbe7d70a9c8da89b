//! The providers of the resources that ports in a cloud's Neutron request: guaranteed bandwidth and packet rates.
//!
//! A row has the provider of one request group of a port, and what is claimed of it. It belongs to a consumer of the
//! resource ledger, and references it: the statement that releases the consumer's allocations also releases its
//! rows, in every operation. During a move the server and its migration have rows for the same group.

use std::collections::BTreeMap;

use kilonova_ids::{ConsumerId, HostName, PortId, ProviderId, ServerId};
use kilonova_store::{Migration, Row, Tx, params};

use super::servers::shape;
use crate::Error;

/// Adds the table. Placement's table of consumers must exist before.
pub const PORT_CLAIMS: Migration = Migration {
    name: "compute-0810-port-claims",
    sql: "
CREATE TABLE port_claims (
    consumer_id TEXT NOT NULL REFERENCES consumers (id)
        ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    group_id TEXT NOT NULL,
    port_id TEXT NOT NULL,
    host TEXT NOT NULL,
    provider_id TEXT NOT NULL,
    resources TEXT NOT NULL,
    PRIMARY KEY (consumer_id, group_id)
);
CREATE INDEX port_claims_by_port ON port_claims (port_id);",
};

kilonova_store::statements! {
    /// Inserts a claim.
    INSERT = "INSERT INTO port_claims (consumer_id, group_id, port_id, host, provider_id, resources)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    /// The claims of a server and its migrations; those of the server last.
    OF_SERVER = "SELECT p.consumer_id, p.group_id, p.port_id, p.host, p.provider_id, p.resources, 0 AS is_own
        FROM moves m JOIN port_claims p ON p.consumer_id = m.id WHERE m.server_id = ?1
        UNION ALL SELECT p.consumer_id, p.group_id, p.port_id, p.host, p.provider_id, p.resources, 1 AS is_own
        FROM port_claims p WHERE p.consumer_id = ?1
        ORDER BY is_own, consumer_id, group_id";
    /// Removes the claims for a port.
    TAKE = "DELETE FROM port_claims WHERE port_id = ?1
        RETURNING consumer_id, group_id, port_id, host, provider_id, resources";
    /// Moves claims to another consumer.
    MOVE = "UPDATE port_claims SET consumer_id = ?2 WHERE consumer_id = ?1";
}

/// The rules of these claims, for the audit.
pub const AUDIT: &[(&str, &str)] = &[(
    "resources that are claimed for a port are allocated to their consumer",
    "SELECT p.port_id AS broken FROM port_claims p
     LEFT JOIN allocations a ON a.consumer_id = p.consumer_id AND a.provider_id = p.provider_id
     WHERE a.consumer_id IS NULL",
)];

/// The claim for one request group of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortClaim {
    /// The server or its migration.
    pub consumer: ConsumerId,
    /// The request group.
    pub group: String,
    /// The port.
    pub port: PortId,
    /// The host of the provider.
    pub host: HostName,
    /// The provider.
    pub provider: ProviderId,
    /// Amounts by class.
    pub resources: BTreeMap<String, i64>,
}

/// Records a claim.
///
/// # Errors
/// Store errors only; also for the functions below.
pub fn insert(tx: &mut Tx<'_>, claim: &PortClaim) -> Result<(), Error> {
    let PortClaim { consumer, group, port, host, provider, resources } = claim;
    let resources = serde_json::to_string(resources)
        .map_err(|error| shape(format!("resources of port {port}: {error}")))?;
    Ok(tx.defer(INSERT, params![*consumer, group.as_str(), *port, host, *provider, resources])?)
}

/// The claims of a server and its migrations; those of the server last.
pub fn of_server(tx: &mut Tx<'_>, server: ServerId) -> Result<Vec<PortClaim>, Error> {
    tx.rows(OF_SERVER, params![server])?.iter().map(read).collect()
}

/// Removes the claims for a port, whose resources the caller releases.
pub fn take(tx: &mut Tx<'_>, port: PortId) -> Result<Vec<PortClaim>, Error> {
    tx.rows(TAKE, params![port])?.iter().map(read).collect()
}

/// Moves the claims of a consumer to another one, which must have none. The other one must have allocations at the
/// commit, and get them after this call.
pub fn hand_over(tx: &mut Tx<'_>, from: ConsumerId, to: ConsumerId) -> Result<(), Error> {
    Ok(tx.defer(MOVE, params![from, to])?)
}

fn read(row: &Row) -> Result<PortClaim, Error> {
    let port: PortId = row.id("port_id")?;
    let resources = serde_json::from_str(row.text("resources")?)
        .map_err(|error| shape(format!("resources of port {port}: {error}")))?;
    Ok(PortClaim {
        consumer: row.id("consumer_id")?,
        group: row.string("group_id")?,
        port,
        host: row.host("host")?,
        provider: row.id("provider_id")?,
        resources,
    })
}
