//! Running times and sizes of servers for usage reports: existing servers, and recently deleted
//! ones.

use jiff::Timestamp;
use kilonova_ids::ServerId;
use kilonova_store::{Error as StoreError, Row, Tx, params};
use serde::Deserialize;

use super::servers::VmState;
use crate::Error;

/// Selects existing and deleted servers.
macro_rules! select {
    () => {
        "SELECT id, project_id, name, vm_state, vcpus, memory_mb, spec, launched_at, deleted_at FROM (
            SELECT id, project_id, name, vm_state, vcpus, memory_mb, spec, launched_at,
            CAST(NULL AS BIGINT) AS deleted_at FROM servers
            UNION ALL SELECT id, project_id, name, vm_state, vcpus, memory_mb, spec, launched_at,
            deleted_at FROM deleted_servers) every_server"
    };
}

kilonova_store::statements! {
    /// Servers after a place that existed between two times, in the order of projects and ids. The
    /// indexes by project serve the first key, so that at most the servers of one project are sorted
    /// at a time.
    BETWEEN = concat!(select!(), "
        WHERE launched_at < ?2 AND (deleted_at IS NULL OR deleted_at >= ?1)
        AND project_id >= ?3 AND (project_id > ?3 OR id > ?4) ORDER BY project_id, id LIMIT ?5");
    /// The same for one project.
    BETWEEN_OF_PROJECT = concat!(select!(), "
        WHERE launched_at < ?2 AND (deleted_at IS NULL OR deleted_at >= ?1)
        AND project_id = ?5 AND (?5 > CAST(?3 AS TEXT) OR (?5 = ?3 AND id > ?4)) ORDER BY id LIMIT ?6");
    /// The project of a server, existing or deleted.
    PROJECT = "SELECT project_id FROM servers WHERE id = ?1
        UNION ALL SELECT project_id FROM deleted_servers WHERE id = ?1";
}

/// A server in a usage report.
#[derive(Debug, Clone)]
pub struct Ran {
    /// Id.
    pub id: String,
    /// Owner.
    pub project_id: String,
    /// Name.
    pub name: String,
    /// Its state.
    pub state: VmState,
    /// Number of vCPUs.
    pub vcpus: i64,
    /// Memory in MiB.
    pub memory_mb: i64,
    /// Disk in GiB.
    pub disk_gb: i64,
    /// Flavor name.
    pub flavor: String,
    /// When it was launched.
    pub launched_at: Timestamp,
    /// When it was deleted, if it is deleted.
    pub deleted_at: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Spec {
    flavor: Flavor,
}

#[derive(Deserialize)]
struct Flavor {
    name: String,
    disk: i64,
    ephemeral: i64,
}

fn read(row: &Row) -> Result<Ran, Error> {
    let spec: Spec = serde_json::from_str(row.text("spec")?)
        .map_err(|error| StoreError::Shape(format!("spec of a server: {error}")))?;
    Ok(Ran {
        id: row.string("id")?,
        project_id: row.string("project_id")?,
        name: row.string("name")?,
        state: VmState::parse(row.text("vm_state")?)?,
        vcpus: row.int("vcpus")?,
        memory_mb: row.int("memory_mb")?,
        disk_gb: spec.flavor.disk + spec.flavor.ephemeral,
        flavor: spec.flavor.name,
        launched_at: row.time("launched_at")?,
        deleted_at: row.time_opt("deleted_at")?,
    })
}

/// A place in the order of a report: the project and the id of a server. The default is before all servers.
#[derive(Debug, Clone, Default)]
pub struct Place {
    project_id: String,
    id: String,
}

/// At most `limit` servers after `after` that existed between `start` and `stop`, of one project or of all. Servers of
/// a project are adjacent. The database's collation determines the order of projects.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn between(
    tx: &mut Tx<'_>,
    (start, stop): (Timestamp, Timestamp),
    project_id: Option<&str>,
    after: &Place,
    limit: i64,
) -> Result<Vec<Ran>, Error> {
    let Place { project_id: after, id } = after;
    let rows = match project_id {
        None => tx.rows(BETWEEN, params![start, stop, after, id, limit]),
        Some(project) => {
            tx.rows(BETWEEN_OF_PROJECT, params![start, stop, after, id, project, limit])
        }
    };
    rows?.iter().map(read).collect()
}

/// The place of a server, existing or deleted.
pub fn place(tx: &mut Tx<'_>, id: ServerId) -> Result<Option<Place>, Error> {
    let row = tx.row(PROJECT, params![id])?;
    let place = |row: Row| {
        Ok::<_, StoreError>(Place { project_id: row.string("project_id")?, id: id.to_string() })
    };
    Ok(row.map(place).transpose()?)
}
