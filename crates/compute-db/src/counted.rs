//! Usage counters per project, so that a boot need not read the rows of all of a project's servers.
//!
//! A project's row in `project_usage` contains the sum so far, and `usage_changes` the changes
//! since. Together they equal the sums over `servers`, which the audit proves. A transaction that
//! needs the sum ([`count`]) folds the changes into the row and always writes it, so that two such
//! transactions are serialized. The deletion, restoration or resize of a server only inserts a change, so that
//! no deletion waits for a boot.
//!
//! Every change is written in the transaction that writes the server's row, and before it.

use kilonova_ids::ServerId;
use kilonova_store::{Asked, Error as StoreError, Migration, Row, Tx, params};

use super::usage::ProjectUsage;
use crate::Error;
use crate::servers::VmState;

/// The tables, filled from the existing servers.
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
    /// Adds an amount and the changes of a project to its sum, and returns the new sum.
    ADD = "INSERT INTO project_usage (scope, instances, cores, ram)
        SELECT CAST(?1 AS TEXT), CAST(?2 AS BIGINT) + CAST(COALESCE(SUM(instances), 0) AS BIGINT),
        CAST(?3 AS BIGINT) + CAST(COALESCE(SUM(cores), 0) AS BIGINT),
        CAST(?4 AS BIGINT) + CAST(COALESCE(SUM(ram), 0) AS BIGINT)
        FROM usage_changes WHERE scope = ?1
        ON CONFLICT (scope) DO UPDATE SET instances = project_usage.instances + excluded.instances,
        cores = project_usage.cores + excluded.cores, ram = project_usage.ram + excluded.ram
        RETURNING instances, cores, ram";
    /// Deletes the changes that a project's sum now contains: those of the same database snapshot.
    FOLDED = "DELETE FROM usage_changes WHERE scope = ?1";
    /// The usage of a project.
    OF_PROJECT = "SELECT CAST(COALESCE(SUM(instances), 0) AS BIGINT) AS instances,
        CAST(COALESCE(SUM(cores), 0) AS BIGINT) AS cores,
        CAST(COALESCE(SUM(ram), 0) AS BIGINT) AS ram FROM (
            SELECT instances, cores, ram FROM project_usage WHERE scope = ?1
            UNION ALL SELECT instances, cores, ram FROM usage_changes WHERE scope = ?1) both_kinds";
    /// Subtracts a server.
    LEAVES = "INSERT INTO usage_changes (scope, instances, cores, ram)
        SELECT 'servers/' || project_id, -1, -vcpus, -memory_mb FROM servers
        WHERE id = ?1 AND vm_state <> 'soft-delete'";
    /// Adds a soft-deleted server again. The state is a parameter, so that PostgreSQL finds the server by its id and
    /// does not read the index of all soft-deleted servers.
    RETURNS = "INSERT INTO usage_changes (scope, instances, cores, ram)
        SELECT 'servers/' || project_id, 1, vcpus, memory_mb FROM servers
        WHERE id = ?1 AND vm_state = ?2";
    /// Adjusts the usage to a server's new size.
    RESIZES = "INSERT INTO usage_changes (scope, instances, cores, ram)
        SELECT 'servers/' || project_id, 0, CAST(?2 AS BIGINT) - vcpus,
        CAST(?3 AS BIGINT) - memory_mb FROM servers
        WHERE id = ?1 AND vm_state <> 'soft-delete'";
}

/// The rule for the audit, and the query for the projects that break it.
pub const AUDIT: (&str, &str) = (
    "a project's usage counters equal the usage of its servers",
    "SELECT scope AS broken FROM (
         SELECT 'servers/' || project_id AS scope, 1 AS instances, vcpus AS cores,
         memory_mb AS ram FROM servers WHERE vm_state <> 'soft-delete'
         UNION ALL SELECT scope, -instances, -cores, -ram FROM project_usage
         UNION ALL SELECT scope, -instances, -cores, -ram FROM usage_changes) difference
     GROUP BY scope HAVING SUM(instances) <> 0 OR SUM(cores) <> 0 OR SUM(ram) <> 0",
);

/// The key of a project's counters.
pub fn scope(project_id: &str) -> String {
    format!("servers/{project_id}")
}

/// Adds `more`, the usage of servers that the transaction inserts next, and returns the project's usage including it.
/// Two transactions that count for one project are serialized.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn count(tx: &mut Tx<'_>, project_id: &str, more: ProjectUsage) -> Result<ProjectUsage, Error> {
    let asked = ask_count(tx, project_id, more)?;
    counted(tx, asked)
}

/// Asks for [`count`].
pub fn ask_count(tx: &mut Tx<'_>, project_id: &str, more: ProjectUsage) -> Result<Asked, Error> {
    let scope = scope(project_id);
    let asked = tx.ask(ADD, params![&scope, more.instances, more.cores, more.ram])?;
    tx.defer(FOLDED, params![scope])?;
    Ok(asked)
}

/// The usage that [`ask_count`] asked for.
pub fn counted(tx: &mut Tx<'_>, asked: Asked) -> Result<ProjectUsage, Error> {
    let row = tx.answer_row(asked)?;
    usage(&row.ok_or_else(|| StoreError::Shape("INSERT returned no row".into()))?)
}

/// The usage of a project.
pub fn of_project(tx: &mut Tx<'_>, project_id: &str) -> Result<ProjectUsage, Error> {
    let row = tx.row(OF_PROJECT, params![scope(project_id)])?;
    row.as_ref().map_or_else(|| Ok(ProjectUsage::default()), usage)
}

/// Subtracts a server that is about to be deleted or soft-deleted.
pub(super) fn subtract(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    tx.defer(LEAVES, params![server])?;
    Ok(())
}

/// Adds a server that is about to leave the soft-deleted state.
pub(super) fn add_back(tx: &mut Tx<'_>, server: ServerId) -> Result<(), Error> {
    tx.defer(RETURNS, params![server, VmState::SoftDeleted.as_str()])?;
    Ok(())
}

/// Adjusts the usage for a server that is about to get this size.
pub(super) fn resize(
    tx: &mut Tx<'_>,
    server: ServerId,
    vcpus: i64,
    memory_mb: i64,
) -> Result<(), Error> {
    tx.defer(RESIZES, params![server, vcpus, memory_mb])?;
    Ok(())
}

fn usage(row: &Row) -> Result<ProjectUsage, Error> {
    Ok(ProjectUsage {
        instances: row.int("instances")?,
        cores: row.int("cores")?,
        ram: row.int("ram")?,
    })
}
