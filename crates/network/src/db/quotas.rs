//! Rows of `network_quotas` (limits that differ from the defaults), usage counts, and the rows of
//! `network_quota_guards` that serialize concurrent users of a limit.

use std::collections::BTreeMap;

use kilonova_store::{Error, Tx, params, statements};

statements! {
    /// A project's own limits.
    OF_PROJECT = "SELECT resource, most FROM network_quotas WHERE project_id = ?1";
    /// All limits.
    ALL = "SELECT project_id, resource, most FROM network_quotas ORDER BY project_id, resource";
    /// Sets one limit.
    PUT = "INSERT INTO network_quotas (project_id, resource, most) VALUES (?1, ?2, ?3)
        ON CONFLICT (project_id, resource) DO UPDATE SET most = excluded.most";
    /// Resets a project to the defaults.
    DELETE = "DELETE FROM network_quotas WHERE project_id = ?1";
    /// Writes the row that serializes users of one limit.
    GUARD = "INSERT INTO network_quota_guards (project_id, resource, generation) VALUES (?1, ?2, 1)
        ON CONFLICT (project_id, resource) DO UPDATE SET generation = network_quota_guards.generation + 1";
    /// A project's usage.
    USED = "SELECT (SELECT COUNT(*) FROM networks WHERE project_id = ?1) AS networks,
        (SELECT COUNT(*) FROM subnets WHERE project_id = ?1) AS subnets,
        (SELECT COUNT(*) FROM ports WHERE project_id = ?1) AS ports,
        (SELECT COUNT(*) FROM security_groups WHERE project_id = ?1) AS groups,
        (SELECT COUNT(*) FROM security_group_rules WHERE project_id = ?1) AS rules,
        (SELECT COUNT(*) FROM floating_ips WHERE project_id = ?1) AS floating,
        (SELECT COUNT(*) FROM routers WHERE project_id = ?1) AS routers";
}

/// Announces [`of_project`] and [`used`].
pub(crate) fn expect(tx: &mut Tx<'_>, project: &str) -> Result<(), Error> {
    tx.expect(OF_PROJECT, params![project])?;
    tx.expect(USED, params![project])
}

pub(crate) fn of_project(tx: &mut Tx<'_>, project: &str) -> Result<BTreeMap<String, i64>, Error> {
    let rows = tx.rows(OF_PROJECT, params![project])?;
    rows.iter().map(|row| Ok((row.string("resource")?, row.int("most")?))).collect()
}

pub(crate) fn all(tx: &mut Tx<'_>) -> Result<BTreeMap<String, BTreeMap<String, i64>>, Error> {
    let mut all: BTreeMap<String, BTreeMap<String, i64>> = BTreeMap::new();
    for row in tx.rows(ALL, params![])? {
        let limits = all.entry(row.string("project_id")?).or_default();
        limits.insert(row.string("resource")?, row.int("most")?);
    }
    Ok(all)
}

pub(crate) fn put(tx: &mut Tx<'_>, project: &str, resource: &str, most: i64) -> Result<(), Error> {
    tx.execute(PUT, params![project, resource, most]).map(|_| ())
}

/// Deletes a project's own limits; `false` if it has none.
pub(crate) fn delete(tx: &mut Tx<'_>, project: &str) -> Result<bool, Error> {
    tx.execute(DELETE, params![project]).map(|count| count > 0)
}

/// Of two concurrent transactions that call this for one project and resource, the second one restarts after the
/// commit of the first one, and so counts what the first one added.
pub(crate) fn guard(tx: &mut Tx<'_>, project: &str, resource: &str) -> Result<(), Error> {
    tx.defer(GUARD, params![project, resource])
}

/// The numbers of a project's networks, subnets, ports, security groups, rules, floating IPs
/// and routers, in this order.
pub(crate) fn used(tx: &mut Tx<'_>, project: &str) -> Result<[i64; 7], Error> {
    let row = tx.row(USED, params![project])?;
    let row = row.ok_or_else(|| Error::Shape("COUNT returned no row".into()))?;
    Ok([
        row.int("networks")?,
        row.int("subnets")?,
        row.int("ports")?,
        row.int("groups")?,
        row.int("rules")?,
        row.int("floating")?,
        row.int("routers")?,
    ])
}
