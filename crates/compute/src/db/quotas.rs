//! Limits that operators set, and the rows on which concurrent users of a limit meet.

use std::collections::BTreeMap;

use kilonova_store::{Tx, params};

use crate::Error;

kilonova_store::statements! {
    /// The limits of a project, or of a user in it (`''`: the project itself).
    OF = "SELECT resource, hard_limit FROM quotas WHERE project_id = ?1 AND user_id = ?2";
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

fn limits(tx: &mut Tx<'_>, sql: &str, params: &[kilonova_store::Value]) -> Result<Limits, Error> {
    tx.rows(sql, params)?.iter().map(|row| Ok((row.string(0)?, row.int(1)?))).collect()
}

/// What is set for a project, or for a user in it.
///
/// # Errors
/// The database's; so for all functions here.
pub fn of(tx: &mut Tx<'_>, project_id: &str, user_id: Option<&str>) -> Result<Limits, Error> {
    limits(tx, OF, params![project_id, user_id.unwrap_or_default()])
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
    limits(tx, OF_CLASS, params![class])
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
