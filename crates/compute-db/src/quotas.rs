//! Limits that operators set, and the rows that serialize concurrent users of a limit.

use std::collections::BTreeMap;

use kilonova_store::{Asked, Tx, params};

use super::servers::shape;
use crate::Error;

kilonova_store::statements! {
    /// The limits of a class, of a project (user `''`), and of a user in it.
    ALL = "SELECT 'class' AS level, resource, hard_limit FROM quota_classes WHERE class = ?1
        UNION ALL SELECT 'project' AS level, resource, hard_limit FROM quotas WHERE project_id = ?2 AND user_id = ''
        UNION ALL SELECT 'user' AS level, resource, hard_limit FROM quotas WHERE project_id = ?2 AND user_id = ?3
            AND user_id <> ''";
    /// The sums of the limits of all users in a project.
    OF_USERS = "SELECT resource, CAST(SUM(hard_limit) AS BIGINT) AS total FROM quotas
        WHERE project_id = ?1 AND user_id <> '' GROUP BY resource";
    /// Sets a limit.
    PUT = "INSERT INTO quotas (project_id, user_id, resource, hard_limit) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (project_id, user_id, resource) DO UPDATE SET hard_limit = excluded.hard_limit";
    /// Deletes the limits of a project, including its users.
    RESET_PROJECT = "DELETE FROM quotas WHERE project_id = ?1";
    /// Deletes the limits of a user in a project.
    RESET_USER = "DELETE FROM quotas WHERE project_id = ?1 AND user_id = ?2";
    /// The limits of a class.
    OF_CLASS = "SELECT resource, hard_limit FROM quota_classes WHERE class = ?1";
    /// Sets a limit of a class.
    PUT_CLASS = "INSERT INTO quota_classes (class, resource, hard_limit) VALUES (?1, ?2, ?3)
        ON CONFLICT (class, resource) DO UPDATE SET hard_limit = excluded.hard_limit";
    /// Writes the row that serializes users of one limit.
    GUARD = "INSERT INTO quota_guards (scope, generation) VALUES (?1, 1)
        ON CONFLICT (scope) DO UPDATE SET generation = quota_guards.generation + 1";
}

/// Limits by resource name.
pub type Limits = BTreeMap<String, i64>;

/// The limits of each level; later levels override earlier ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Levels {
    /// The limits of a class.
    pub class: Limits,
    /// The limits of a project.
    pub project: Limits,
    /// The limits of a user in it.
    pub user: Limits,
}

/// The limits of a class, a project, and a user in it.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn all(
    tx: &mut Tx<'_>,
    class: &str,
    project_id: &str,
    user_id: Option<&str>,
) -> Result<Levels, Error> {
    let asked = ask_all(tx, class, project_id, user_id)?;
    levels(tx, asked)
}

/// Asks for [`all`].
pub fn ask_all(
    tx: &mut Tx<'_>,
    class: &str,
    project_id: &str,
    user_id: Option<&str>,
) -> Result<Asked, Error> {
    Ok(tx.ask(ALL, params![class, project_id, user_id.unwrap_or_default()])?)
}

/// The limits that [`ask_all`] asked for.
pub fn levels(tx: &mut Tx<'_>, asked: Asked) -> Result<Levels, Error> {
    let mut levels = Levels::default();
    for row in tx.answer(asked)? {
        let level = match row.text("level")? {
            "class" => &mut levels.class,
            "project" => &mut levels.project,
            "user" => &mut levels.user,
            other => return Err(shape(format!("level of a quota: {other:?}"))),
        };
        level.insert(row.string("resource")?, row.int("hard_limit")?);
    }
    Ok(levels)
}

/// The sums of the limits of all users in a project.
pub fn of_users(tx: &mut Tx<'_>, project_id: &str) -> Result<Limits, Error> {
    let rows = tx.rows(OF_USERS, params![project_id])?;
    rows.iter().map(|row| Ok((row.string("resource")?, row.int("total")?))).collect()
}

/// Sets a limit of a project, or of a user in it.
pub fn put(
    tx: &mut Tx<'_>,
    project_id: &str,
    user_id: Option<&str>,
    resource: &str,
    limit: i64,
) -> Result<(), Error> {
    tx.defer(PUT, params![project_id, user_id.unwrap_or_default(), resource, limit])?;
    Ok(())
}

/// Deletes the limits of a project with all its users, or of one user in it.
pub fn reset(tx: &mut Tx<'_>, project_id: &str, user_id: Option<&str>) -> Result<(), Error> {
    match user_id {
        Some(user_id) => tx.execute(RESET_USER, params![project_id, user_id])?,
        None => tx.execute(RESET_PROJECT, params![project_id])?,
    };
    Ok(())
}

/// The limits of a class.
pub fn of_class(tx: &mut Tx<'_>, class: &str) -> Result<Limits, Error> {
    let rows = tx.rows(OF_CLASS, params![class])?;
    rows.iter().map(|row| Ok((row.string("resource")?, row.int("hard_limit")?))).collect()
}

/// Sets a limit of a class.
pub fn put_class(tx: &mut Tx<'_>, class: &str, resource: &str, limit: i64) -> Result<(), Error> {
    tx.defer(PUT_CLASS, params![class, resource, limit])?;
    Ok(())
}

/// Call this before counting usage against a limit: two transactions that count in the same scope
/// are serialized.
pub fn guard(tx: &mut Tx<'_>, scope: &str) -> Result<(), Error> {
    tx.defer(GUARD, params![scope])?;
    Ok(())
}
