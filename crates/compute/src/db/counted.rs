//! What projects use, counted, so that a boot need not read the rows of all of a project's servers.
//!
//! A project's row in `project_usage` has what was counted so far, and `usage_changes` what came to
//! it since; together they are the sums over `servers`, which the audit proves. Whoever asks whether
//! there is room ([`count`]) takes the changes into the row, and writes it whatever they are: of two
//! who ask at once the database lets one go first. Whoever makes a server smaller or takes one away
//! only adds a change, so that no deletion waits for a boot.
//!
//! Every change is written in the transaction that writes the server's row, and before it.

use kilonova_ids::ServerId;
use kilonova_store::{Error as StoreError, Migration, Row, Tx, params};

use super::usage::ProjectUsage;
use crate::Error;

/// The tables, with what is there already.
pub const COUNTED: Migration = Migration {
    name: "compute-0400-counted",
    sql: "
CREATE TABLE project_usage (
    scope TEXT PRIMARY KEY,
    instances BIGINT NOT NULL,
    cores BIGINT NOT NULL,
    ram BIGINT NOT NULL
);
CREATE TABLE usage_changes (
    number {serial},
    scope TEXT NOT NULL,
    instances BIGINT NOT NULL,
    cores BIGINT NOT NULL,
    ram BIGINT NOT NULL
);
CREATE INDEX usage_changes_by_scope ON usage_changes (scope);
INSERT INTO project_usage (scope, instances, cores, ram)
    SELECT 'servers/' || project_id, COUNT(*), CAST(SUM(vcpus) AS BIGINT),
    CAST(SUM(memory_mb) AS BIGINT) FROM servers WHERE vm_state <> 'soft-delete'
    GROUP BY project_id;",
};

kilonova_store::statements! {
    /// Takes the changes of a project out, and says what they are.
    FOLD = "DELETE FROM usage_changes WHERE scope = ?1 RETURNING instances, cores, ram";
    /// Adds to what is counted of a project, and says what it is then.
    ADD = "INSERT INTO project_usage (scope, instances, cores, ram) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (scope) DO UPDATE SET instances = project_usage.instances + excluded.instances,
        cores = project_usage.cores + excluded.cores, ram = project_usage.ram + excluded.ram
        RETURNING instances, cores, ram";
    /// What a project uses.
    OF_PROJECT = "SELECT CAST(COALESCE(SUM(instances), 0) AS BIGINT),
        CAST(COALESCE(SUM(cores), 0) AS BIGINT), CAST(COALESCE(SUM(ram), 0) AS BIGINT) FROM (
            SELECT instances, cores, ram FROM project_usage WHERE scope = ?1
            UNION ALL SELECT instances, cores, ram FROM usage_changes WHERE scope = ?1) both_kinds";
    /// A server that counts does no longer.
    LEAVES = "INSERT INTO usage_changes (scope, instances, cores, ram)
        SELECT 'servers/' || project_id, -1, -vcpus, -memory_mb FROM servers
        WHERE id = ?1 AND vm_state <> 'soft-delete'";
    /// A server that did not count does again.
    RETURNS = "INSERT INTO usage_changes (scope, instances, cores, ram)
        SELECT 'servers/' || project_id, 1, vcpus, memory_mb FROM servers
        WHERE id = ?1 AND vm_state = 'soft-delete'";
    /// A server that counts gets another size.
    RESIZES = "INSERT INTO usage_changes (scope, instances, cores, ram)
        SELECT 'servers/' || project_id, 0, CAST(?2 AS BIGINT) - vcpus,
        CAST(?3 AS BIGINT) - memory_mb FROM servers
        WHERE id = ?1 AND vm_state <> 'soft-delete'";
}

/// The rule that the audit checks: projects whose count is not what their servers are.
pub const AUDIT: (&str, &str) = (
    "what is counted of a project is what its servers use",
    "SELECT scope FROM (
         SELECT 'servers/' || project_id AS scope, 1 AS instances, vcpus AS cores,
         memory_mb AS ram FROM servers WHERE vm_state <> 'soft-delete'
         UNION ALL SELECT scope, -instances, -cores, -ram FROM project_usage
         UNION ALL SELECT scope, -instances, -cores, -ram FROM usage_changes) difference
     GROUP BY scope HAVING SUM(instances) <> 0 OR SUM(cores) <> 0 OR SUM(ram) <> 0",
);

/// The key under which a project is counted.
pub fn scope(project_id: &str) -> String {
    format!("servers/{project_id}")
}

/// Counts `more` in, which is about to be written, and says what the project uses with it. Of two
/// transactions that count for one project, the database lets one go first.
///
/// # Errors
/// The database's; so for all functions here.
pub fn count(tx: &mut Tx<'_>, project_id: &str, more: ProjectUsage) -> Result<ProjectUsage, Error> {
    let scope = scope(project_id);
    let mut sum = more;
    for row in tx.rows(FOLD, params![&scope])? {
        let change = usage(&row)?;
        sum.instances += change.instances;
        sum.cores += change.cores;
        sum.ram += change.ram;
    }
    let row = tx.row(ADD, params![scope, sum.instances, sum.cores, sum.ram])?;
    usage(&row.ok_or_else(|| StoreError::Shape("INSERT returned no row".into()))?)
}

/// What a project uses.
pub fn of_project(tx: &mut Tx<'_>, project_id: &str) -> Result<ProjectUsage, Error> {
    let row = tx.row(OF_PROJECT, params![scope(project_id)])?;
    row.as_ref().map_or_else(|| Ok(ProjectUsage::default()), usage)
}

/// The server is about to go, or to be deleted so that it can be restored.
pub(super) fn leaves(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    tx.execute(LEAVES, params![server])?;
    Ok(())
}

/// The server is about to be something else than deleted.
pub(super) fn returns(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    tx.execute(RETURNS, params![server])?;
    Ok(())
}

/// The server is about to get this size.
pub(super) fn resizes(
    tx: &mut Tx<'_>,
    server: ServerId,
    vcpus: i64,
    memory_mb: i64,
) -> Result<(), Error> {
    tx.execute(RESIZES, params![server, vcpus, memory_mb])?;
    Ok(())
}

fn usage(row: &Row) -> Result<ProjectUsage, Error> {
    Ok(ProjectUsage { instances: row.int(0)?, cores: row.int(1)?, ram: row.int(2)? })
}
