//! Resources that open resizes have claimed beyond the counted size of their servers.
//!
//! A server is counted with the size in its row. While its resize can still end either way, its
//! project has claimed the larger of the two sizes: the new one from the start, the old one until
//! the confirmation. Otherwise concurrent resizes, or a revert, could exceed the quota.

use kilonova_store::{Asked, Error as StoreError, Migration, Tx, params};

use super::usage::ProjectUsage;
use crate::Error;

/// Adds the larger of the two sizes to each resize.
pub const RESERVED: Migration = Migration {
    name: "compute-0500-reserved",
    sql: "
ALTER TABLE moves ADD COLUMN most_vcpus BIGINT NOT NULL DEFAULT 0;
ALTER TABLE moves ADD COLUMN most_memory BIGINT NOT NULL DEFAULT 0;
CREATE INDEX moves_open_by_project ON moves (project_id) WHERE open_server IS NOT NULL;",
};

/// Selects the sums of a project.
macro_rules! select {
    () => {
        "SELECT CAST(COALESCE(SUM(CASE WHEN m.most_vcpus > s.vcpus
            THEN m.most_vcpus - s.vcpus ELSE 0 END), 0) AS BIGINT) AS cores,
        CAST(COALESCE(SUM(CASE WHEN m.most_memory > s.memory_mb
            THEN m.most_memory - s.memory_mb ELSE 0 END), 0) AS BIGINT) AS ram
        FROM moves m JOIN servers s ON s.id = m.server_id
        WHERE m.project_id = ?1 AND m.open_server IS NOT NULL"
    };
}

kilonova_store::statements! {
    /// The sums of a project.
    OF_PROJECT = select!();
    /// The sums of a user's servers in a project.
    OF_USER = concat!(select!(), " AND s.user_id = ?2");
}

/// Resources that open resizes of a project, or of one user's servers in it, have claimed beyond
/// the counted usage.
///
/// # Errors
/// Store errors only.
pub fn reserved(
    tx: &mut Tx<'_>,
    project_id: &str,
    user_id: Option<&str>,
) -> Result<ProjectUsage, Error> {
    let asked = ask_reserved(tx, project_id, user_id)?;
    sum(tx, asked)
}

/// Asks for [`reserved`].
///
/// # Errors
/// Store errors only.
pub fn ask_reserved(
    tx: &mut Tx<'_>,
    project_id: &str,
    user_id: Option<&str>,
) -> Result<Asked, Error> {
    Ok(match user_id {
        None => tx.ask(OF_PROJECT, params![project_id])?,
        Some(user_id) => tx.ask(OF_USER, params![project_id, user_id])?,
    })
}

/// The resources that [`ask_reserved`] asked for.
///
/// # Errors
/// Store errors only.
pub fn sum(tx: &mut Tx<'_>, asked: Asked) -> Result<ProjectUsage, Error> {
    let row = tx.answer_row(asked)?;
    let row = row.ok_or_else(|| StoreError::Shape("a sum has no row".into()))?;
    Ok(ProjectUsage { instances: 0, cores: row.int("cores")?, ram: row.int("ram")? })
}
