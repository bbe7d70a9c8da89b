//! Users. Only a login reads the password hash.

use jiff::Timestamp;
use kilonova_store::{Error, Row, Tx, params, statements};
use serde_json::{Map, Value};

use super::{object, text};

/// A stored user, without the password.
#[derive(Debug, Clone)]
pub(crate) struct User {
    pub id: String,
    pub name: String,
    pub enabled: bool,
    pub default_project_id: Option<String>,
    /// Tokens issued earlier are invalid.
    pub tokens_valid_from: Timestamp,
    pub extra: Map<String, Value>,
    /// Keystone's resource options.
    pub options: Map<String, Value>,
}

/// Selects [`User`]s from the tables that follow. No joined table has another column with one of these names.
macro_rules! select_from {
    () => {
        "SELECT id, name, enabled, default_project_id, tokens_valid_from, extra, options FROM"
    };
}

statements! {
    /// Adds a user.
    INSERT = "INSERT INTO identity_users
        (id, name, enabled, default_project_id, tokens_valid_from, extra, options, password_hash)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    /// Updates all columns but the id and the password.
    UPDATE = "UPDATE identity_users SET name = ?2, enabled = ?3, default_project_id = ?4,
        tokens_valid_from = ?5, extra = ?6, options = ?7 WHERE id = ?1";
    /// Sets or removes the password.
    SET_PASSWORD = "UPDATE identity_users SET password_hash = ?2, tokens_valid_from = ?3
        WHERE id = ?1";
    /// Replaces the password of an enabled user who still has the old one.
    REPLACE_PASSWORD = "UPDATE identity_users SET password_hash = ?2, tokens_valid_from = ?3
        WHERE id = ?1 AND password_hash = ?4 AND enabled = 1";
    /// Removes a default project from its users.
    UNSET_DEFAULT_PROJECT = "UPDATE identity_users SET default_project_id = NULL
        WHERE default_project_id = ?1";
    /// Detects a concurrent transaction that uses a limit of the user.
    TOUCH = "UPDATE identity_users SET enabled = enabled WHERE id = ?1";
    /// One user by id.
    BY_ID = concat!(select_from!(), " identity_users WHERE id = ?1");
    /// One user by name.
    BY_NAME = concat!(select_from!(), " identity_users WHERE name = ?1");
    /// Users, optionally by name and by state.
    LIST = concat!(select_from!(), " identity_users
        WHERE (CAST(?1 AS TEXT) IS NULL OR name = ?1)
          AND (CAST(?2 AS BIGINT) IS NULL OR enabled = ?2)
        ORDER BY name");
    /// The members of a group, optionally by name.
    OF_GROUP = concat!(select_from!(), " identity_memberships m JOIN identity_users u ON u.id = m.user_id
        WHERE m.group_id = ?1 AND (CAST(?2 AS TEXT) IS NULL OR u.name = ?2) ORDER BY u.name");
    /// The password hash.
    PASSWORD_HASH = "SELECT password_hash FROM identity_users WHERE id = ?1";
    /// Deletes a user.
    DELETE = "DELETE FROM identity_users WHERE id = ?1";
}

fn read(row: &Row) -> Result<User, Error> {
    Ok(User {
        id: row.string("id")?,
        name: row.string("name")?,
        enabled: row.bool("enabled")?,
        default_project_id: row.string_opt("default_project_id")?,
        tokens_valid_from: row.time("tokens_valid_from")?,
        extra: object(row.text("extra")?)?,
        options: object(row.text("options")?)?,
    })
}

fn values(user: &User) -> Vec<kilonova_store::Value> {
    params![
        &user.id,
        &user.name,
        user.enabled,
        user.default_project_id.clone(),
        user.tokens_valid_from,
        text(&user.extra),
        text(&user.options),
    ]
    .to_vec()
}

/// Adds a user with its password hash, if it has one.
pub(crate) fn insert(tx: &mut Tx<'_>, user: &User, hash: Option<&str>) -> Result<(), Error> {
    let mut values = values(user);
    values.push(hash.into());
    tx.execute(INSERT, &values).map(|_| ())
}

/// Updates everything but the password.
pub(crate) fn update(tx: &mut Tx<'_>, user: &User) -> Result<(), Error> {
    tx.execute(UPDATE, &values(user)).map(|_| ())
}

/// Sets or removes the password, and invalidates tokens issued before a time.
pub(crate) fn set_password(
    tx: &mut Tx<'_>,
    id: &str,
    hash: Option<&str>,
    tokens_valid_from: Timestamp,
) -> Result<(), Error> {
    tx.execute(SET_PASSWORD, params![id, hash, tokens_valid_from]).map(|_| ())
}

/// Like [`set_password`], but only for an enabled user who still has the password `old`; returns false otherwise.
pub(crate) fn replace_password(
    tx: &mut Tx<'_>,
    id: &str,
    old: &str,
    hash: &str,
    tokens_valid_from: Timestamp,
) -> Result<bool, Error> {
    Ok(tx.execute(REPLACE_PASSWORD, params![id, hash, tokens_valid_from, old])? > 0)
}

/// Removes a default project from its users.
pub(crate) fn unset_default_project(tx: &mut Tx<'_>, project: &str) -> Result<(), Error> {
    tx.execute(UNSET_DEFAULT_PROJECT, params![project]).map(|_| ())
}

/// Of two concurrent transactions that call this for one user, the second one restarts after the commit of the
/// first one. Call this where the user's objects are counted against a limit.
pub(crate) fn touch(tx: &mut Tx<'_>, id: &str) -> Result<(), Error> {
    tx.defer(TOUCH, params![id])
}

/// One user by id.
pub(crate) fn by_id(tx: &mut Tx<'_>, id: &str) -> Result<Option<User>, Error> {
    tx.row(BY_ID, params![id])?.as_ref().map(read).transpose()
}

/// One user by name.
pub(crate) fn by_name(tx: &mut Tx<'_>, name: &str) -> Result<Option<User>, Error> {
    tx.row(BY_NAME, params![name])?.as_ref().map(read).transpose()
}

/// Users, optionally by name and by state.
pub(crate) fn list(
    tx: &mut Tx<'_>,
    name: Option<&str>,
    enabled: Option<bool>,
) -> Result<Vec<User>, Error> {
    tx.rows(LIST, params![name, enabled])?.iter().map(read).collect()
}

/// The members of a group, optionally by name.
pub(crate) fn of_group(
    tx: &mut Tx<'_>,
    group: &str,
    name: Option<&str>,
) -> Result<Vec<User>, Error> {
    tx.rows(OF_GROUP, params![group, name])?.iter().map(read).collect()
}

/// The password hash; `None` if the user has no password.
pub(crate) fn password_hash(tx: &mut Tx<'_>, id: &str) -> Result<Option<String>, Error> {
    tx.row(PASSWORD_HASH, params![id])?.map_or(Ok(None), |row| row.string_opt("password_hash"))
}

/// Deletes a user; returns false if it does not exist.
pub(crate) fn delete(tx: &mut Tx<'_>, id: &str) -> Result<bool, Error> {
    Ok(tx.execute(DELETE, params![id])? > 0)
}
