//! Limits that operators set, and the rows on which concurrent users of a limit meet.

use std::collections::BTreeMap;

use kilonova_store::{Tx, params};

use crate::Error;

kilonova_store::statements! {
    /// The limits of a class, of a project (user `''`), and of a user in it.
    ALL = "SELECT 0, resource, hard_limit FROM quota_classes WHERE class = ?1
        UNION ALL SELECT 1, resource, hard_limit FROM quotas WHERE project_id = ?2 AND user_id = ''
        UNION ALL SELECT 2, resource, hard_limit FROM quotas WHERE project_id = ?2 AND user_id = ?3
            AND user_id <> ''";
    /// Sets one.
    PUT = "INSERT INTO quotas (project_id, user_id, resource, hard_limit) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (project_id, user_id, resource) DO UPDATE SET hard_limit = excluded.hard_limit";
    /// Back to the defaults, users included.
    RESET_PROJECT = "DELETE FROM quotas WHERE project_id = ?1";
    /// Back to the project's, for one user.
    RESET_USER = "DELETE FROM quotas WHERE project_id = ?1 AND user_id = ?2";
    /// The limits of a class.
    OF_CLASS = "SELECT resource, hard_limit FROM quota_classes WHERE class = ?1";
    /// Sets one.
    PUT_CLASS = "INSERT INTO quota_classes (class, resource, hard_limit) VALUES (?1, ?2, ?3)
        ON CONFLICT (class, resource) DO UPDATE SET hard_limit = excluded.hard_limit";
    /// Makes concurrent users of one limit meet on a row.
    GUARD = "INSERT INTO quota_guards (scope, generation) VALUES (?1, 1)
        ON CONFLICT (scope) DO UPDATE SET generation = quota_guards.generation + 1";
}

/// Limits by resource name.
pub type Limits = BTreeMap<String, i64>;

/// What is set at each level; the later override the earlier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Levels {
    /// For a class.
    pub class: Limits,
    /// For a project.
    pub project: Limits,
    /// For a user in it.
    pub user: Limits,
}

/// What is set for a class, a project, and a user in it.
///
/// # Errors
/// The database's; so for all functions here.
pub fn all(
    tx: &mut Tx<'_>,
    class: &str,
    project_id: &str,
    user_id: Option<&str>,
) -> Result<Levels, Error> {
    let mut levels = Levels::default();
    for row in tx.rows(ALL, params![class, project_id, user_id.unwrap_or_default()])? {
        let level = match row.int(0)? {
            0 => &mut levels.class,
            1 => &mut levels.project,
            _ => &mut levels.user,
        };
        level.insert(row.string(1)?, row.int(2)?);
    }
    Ok(levels)
}

/// Sets a limit of a project, or of a user in it.
pub fn put(
    tx: &mut Tx<'_>,
    project_id: &str,
    user_id: Option<&str>,
    resource: &str,
    limit: i64,
) -> Result<(), Error> {
    tx.execute(PUT, params![project_id, user_id.unwrap_or_default(), resource, limit])?;
    Ok(())
}

/// Forgets the limits of a project with all its users, or of one user in it.
pub fn reset(tx: &mut Tx<'_>, project_id: &str, user_id: Option<&str>) -> Result<(), Error> {
    match user_id {
        Some(user_id) => tx.execute(RESET_USER, params![project_id, user_id])?,
        None => tx.execute(RESET_PROJECT, params![project_id])?,
    };
    Ok(())
}

/// What is set for a class.
pub fn of_class(tx: &mut Tx<'_>, class: &str) -> Result<Limits, Error> {
    let rows = tx.rows(OF_CLASS, params![class])?;
    rows.iter().map(|row| Ok((row.string(0)?, row.int(1)?))).collect()
}

/// Sets a limit of a class.
pub fn put_class(tx: &mut Tx<'_>, class: &str, resource: &str, limit: i64) -> Result<(), Error> {
    tx.execute(PUT_CLASS, params![class, resource, limit])?;
    Ok(())
}

/// To be called before counting what a limit is compared with: of two transactions that count in
/// the same scope, the database lets one go first.
pub fn guard(tx: &mut Tx<'_>, scope: &str) -> Result<(), Error> {
    tx.execute(GUARD, params![scope])?;
    Ok(())
}
