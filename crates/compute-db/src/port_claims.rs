//! Records the claims of ports in an external Neutron: the providers of the guaranteed bandwidth and packet rates that
//! the ports request.
//!
//! A row has the provider of one request group of a port, and the amounts that are claimed there. It references its
//! consumer in Placement's table, so the statement that deletes the consumer also deletes these rows, in every
//! operation. During a move the server and its migration have rows for the same group.
//!
//! If the QoS policy of a bound port changes, Neutron first changes the allocations and then names the new groups in
//! the port's binding. In between, the row of an earlier group has the new amounts, which may be empty.

use std::collections::BTreeMap;

use kilonova_ids::{ConsumerId, HostName, PortId, ProviderId, ServerId};
use kilonova_store::{Migration, Row, Tx, params};

use super::servers::shape;
use crate::Error;

/// Adds the table. Placement's table of consumers must exist first.
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
    /// The claims of a server and its migrations; the server's own claims come last.
    OF_SERVER = "SELECT p.consumer_id, p.group_id, p.port_id, p.host, p.provider_id, p.resources, 0 AS is_own
        FROM moves m JOIN port_claims p ON p.consumer_id = m.id WHERE m.server_id = ?1
        UNION ALL SELECT p.consumer_id, p.group_id, p.port_id, p.host, p.provider_id, p.resources, 1 AS is_own
        FROM port_claims p WHERE p.consumer_id = ?1
        ORDER BY is_own, consumer_id, group_id";
    /// The claims of a consumer on a provider.
    ON_PROVIDER = "SELECT consumer_id, group_id, port_id, host, provider_id, resources FROM port_claims
        WHERE consumer_id = ?1 AND provider_id = ?2 ORDER BY group_id";
    /// Sets the claimed amounts of a group.
    SET = "UPDATE port_claims SET resources = ?3 WHERE consumer_id = ?1 AND group_id = ?2";
    /// Removes the claims of a consumer for a port.
    TAKE_OF = "DELETE FROM port_claims WHERE consumer_id = ?1 AND port_id = ?2
        RETURNING consumer_id, group_id, port_id, host, provider_id, resources";
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
     WHERE a.consumer_id IS NULL AND p.resources <> '{}'",
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
    let PortClaim { consumer, group, port, host, provider, .. } = claim;
    let resources = resources_of(claim)?;
    Ok(tx.defer(INSERT, params![*consumer, group.as_str(), *port, host, *provider, resources])?)
}

fn resources_of(claim: &PortClaim) -> Result<String, Error> {
    serde_json::to_string(&claim.resources)
        .map_err(|error| shape(format!("resources of port {}: {error}", claim.port)))
}

/// Adds amounts, which may be negative, to the claims of a consumer on a provider. Returns false if the consumer has no
/// claim there, or if more would be subtracted than it has claimed; the caller must then abort the transaction. The
/// port whose request has changed is not known here, so the first claims with these resources are changed. [`replace`]
/// corrects them once the port has been read.
pub fn add(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
    provider: ProviderId,
    amounts: &BTreeMap<String, i64>,
) -> Result<bool, Error> {
    let rows = tx.rows(ON_PROVIDER, params![consumer, provider])?;
    let earlier: Vec<PortClaim> = rows.iter().map(read).collect::<Result<_, _>>()?;
    let mut claims = earlier.clone();
    if !add_to(&mut claims, amounts) {
        return Ok(false);
    }
    for claim in changed(&earlier, &claims) {
        tx.defer(SET, params![consumer, claim.group.as_str(), resources_of(claim)?])?;
    }
    Ok(true)
}

/// The claims that differ from `earlier`. Both lists are in the same order.
fn changed<'a>(
    earlier: &'a [PortClaim],
    claims: &'a [PortClaim],
) -> impl Iterator<Item = &'a PortClaim> {
    earlier.iter().zip(claims).filter(|(old, new)| old != new).map(|(_, new)| new)
}

fn add_to(claims: &mut [PortClaim], amounts: &BTreeMap<String, i64>) -> bool {
    for (class, amount) in amounts {
        let mut left = *amount;
        if left > 0 {
            let at = claims.iter().position(|claim| claim.resources.contains_key(class));
            let Some(claim) = claims.get_mut(at.unwrap_or_default()) else { return false };
            let sum = claim.resources.entry(class.clone()).or_default();
            *sum = sum.saturating_add(left);
            continue;
        }
        for claim in claims.iter_mut() {
            if let Some(sum) = claim.resources.get_mut(class) {
                let taken = left.max(-*sum);
                *sum += taken;
                left -= taken;
                claim.resources.retain(|_, amount| *amount > 0);
            }
        }
        if left < 0 {
            return false;
        }
    }
    true
}

/// Replaces the claims of a consumer for a port, and returns the earlier claims. Inserts nothing if the consumer has no
/// claims for the port, because another consumer has them by now.
pub fn replace(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
    port: PortId,
    claims: &[PortClaim],
) -> Result<Vec<PortClaim>, Error> {
    let earlier = take_of(tx, consumer, port)?;
    if !earlier.is_empty() {
        claims.iter().try_for_each(|claim| insert(tx, claim))?;
    }
    Ok(earlier)
}

/// Removes the claims of a consumer for a port, and returns them. The caller must release their resources.
pub fn take_of(
    tx: &mut Tx<'_>,
    consumer: ConsumerId,
    port: PortId,
) -> Result<Vec<PortClaim>, Error> {
    tx.rows(TAKE_OF, params![consumer, port])?.iter().map(read).collect()
}

/// The claims of a server and its migrations; the server's own claims come last.
pub fn of_server(tx: &mut Tx<'_>, server: ServerId) -> Result<Vec<PortClaim>, Error> {
    tx.rows(OF_SERVER, params![server])?.iter().map(read).collect()
}

/// Removes the claims for a port, and returns them. The caller must release their resources.
pub fn take(tx: &mut Tx<'_>, port: PortId) -> Result<Vec<PortClaim>, Error> {
    tx.rows(TAKE, params![port])?.iter().map(read).collect()
}

/// Moves the claims of a consumer to another consumer, which must have no claims. The caller must give the other
/// consumer its allocations after this call and before the commit.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(amounts: &[&[(&str, i64)]]) -> Vec<PortClaim> {
        let claim = |amounts: &&[(&str, i64)]| PortClaim {
            consumer: ConsumerId::nil(),
            group: String::new(),
            port: PortId::nil(),
            host: HostName::verbatim("a"),
            provider: ProviderId::nil(),
            resources: map(amounts),
        };
        amounts.iter().map(claim).collect()
    }

    fn map(amounts: &[(&str, i64)]) -> BTreeMap<String, i64> {
        amounts.iter().map(|(class, amount)| ((*class).to_owned(), *amount)).collect()
    }

    #[test]
    fn a_change_is_added_to_the_claims_with_such_resources() {
        let mut found = claims(&[&[("IN", 1)], &[("OUT", 5)], &[("OUT", 7)]]);
        assert!(add_to(&mut found, &map(&[("OUT", 3)])));
        assert_eq!(found, claims(&[&[("IN", 1)], &[("OUT", 8)], &[("OUT", 7)]]));
        assert!(add_to(&mut found, &map(&[("OUT", -10), ("IN", 1)])));
        assert_eq!(found, claims(&[&[("IN", 2)], &[], &[("OUT", 5)]]));
        assert!(add_to(&mut found, &map(&[("NEW", 4)])));
        assert_eq!(found, claims(&[&[("IN", 2), ("NEW", 4)], &[], &[("OUT", 5)]]));
    }

    #[test]
    fn claims_that_stay_are_not_written() {
        let earlier = claims(&[&[("IN", 1)], &[("OUT", 5)], &[("OUT", 7)]]);
        let mut found = earlier.clone();
        assert!(add_to(&mut found, &map(&[("OUT", -6)])));
        let written: Vec<_> = changed(&earlier, &found).map(|claim| &claim.resources).collect();
        assert_eq!(written, [&map(&[]), &map(&[("OUT", 6)])]);
        assert!(add_to(&mut found, &map(&[("OUT", 6)])));
        let written: Vec<_> = changed(&earlier, &found).map(|claim| &claim.resources).collect();
        assert_eq!(written, [&map(&[]), &map(&[("OUT", 12)])]);
    }

    #[test]
    fn more_than_all_claims_is_not_released() {
        let mut found = claims(&[&[("OUT", 5)]]);
        assert!(!add_to(&mut found, &map(&[("OUT", -6)])));
        assert!(!add_to(&mut found, &map(&[("IN", -1)])));
        assert!(!add_to(&mut [], &map(&[("IN", 1)])));
    }
}
