//! Running times and sizes of servers for usage reports: existing servers, and recently deleted
//! ones.

use jiff::Timestamp;
use kilonova_ids::ServerId;
use kilonova_store::{Error as StoreError, Row, Tx, params};
use serde::Deserialize;

use super::servers::VmState;
use crate::Error;

kilonova_store::statements! {
    /// Servers with numbers above a given one that existed between two times, in order of creation.
    BETWEEN = "SELECT seq, id, project_id, name, vm_state, vcpus, memory_mb, spec, launched_at,
        deleted_at FROM (
            SELECT seq, id, project_id, name, vm_state, vcpus, memory_mb, spec, launched_at,
            CAST(NULL AS BIGINT) AS deleted_at FROM servers
            UNION ALL SELECT seq, id, project_id, name, vm_state, vcpus, memory_mb, spec, launched_at,
            deleted_at FROM deleted_servers) every_server
        WHERE launched_at < ?2 AND (deleted_at IS NULL OR deleted_at >= ?1)
        AND (CAST(?3 AS TEXT) IS NULL OR project_id = ?3) AND seq > ?4 ORDER BY seq LIMIT ?5";
    /// The number of a server, existing or deleted.
    NUMBER = "SELECT seq FROM servers WHERE id = ?1
        UNION ALL SELECT seq FROM deleted_servers WHERE id = ?1";
}

/// A server in a usage report.
#[derive(Debug, Clone)]
pub struct Ran {
    /// Its sequence number; grows with time.
    pub seq: i64,
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
        seq: row.int("seq")?,
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

/// At most `limit` servers with numbers above `after` that existed between `start` and `stop`.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn between(
    tx: &mut Tx<'_>,
    (start, stop): (Timestamp, Timestamp),
    project_id: Option<&str>,
    after: i64,
    limit: i64,
) -> Result<Vec<Ran>, Error> {
    tx.rows(BETWEEN, params![start, stop, project_id, after, limit])?.iter().map(read).collect()
}

/// The number of a server, existing or deleted.
pub fn number(tx: &mut Tx<'_>, id: ServerId) -> Result<Option<i64>, Error> {
    Ok(tx.row(NUMBER, params![id])?.map(|row| row.int("seq")).transpose()?)
}
