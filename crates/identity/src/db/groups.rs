//! Groups of users and their members.

use kilonova_store::{Error, Row, Tx, params, statements};
use serde_json::{Map, Value};

use super::{object, text};

/// A stored group.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub id: String,
    pub name: String,
    pub description: String,
    pub extra: Map<String, Value>,
}

/// Selects [`Group`]s from the tables that follow. No joined table has another column with one of these names.
macro_rules! select_from {
    () => {
        "SELECT id, name, description, extra FROM"
    };
}

statements! {
    /// Adds a group.
    INSERT = "INSERT INTO identity_groups (id, name, description, extra) VALUES (?1, ?2, ?3, ?4)";
    /// Updates all columns but the id.
    UPDATE = "UPDATE identity_groups SET name = ?2, description = ?3, extra = ?4 WHERE id = ?1";
    /// One group by id.
    BY_ID = concat!(select_from!(), " identity_groups WHERE id = ?1");
    /// All groups, optionally by name.
    LIST = concat!(select_from!(), " identity_groups
        WHERE (CAST(?1 AS TEXT) IS NULL OR name = ?1) ORDER BY name");
    /// The groups of a user, optionally by name.
    OF_USER = concat!(select_from!(), " identity_memberships m
        JOIN identity_groups g ON g.id = m.group_id
        WHERE m.user_id = ?1 AND (CAST(?2 AS TEXT) IS NULL OR g.name = ?2) ORDER BY g.name");
    /// Deletes a group.
    DELETE = "DELETE FROM identity_groups WHERE id = ?1";
    /// Adds a member; idempotent.
    JOIN = "INSERT INTO identity_memberships (user_id, group_id) VALUES (?1, ?2)
        ON CONFLICT (user_id, group_id) DO NOTHING";
    /// Removes a member.
    LEAVE = "DELETE FROM identity_memberships WHERE user_id = ?1 AND group_id = ?2";
    /// One membership.
    CONTAINS = "SELECT 1 FROM identity_memberships WHERE user_id = ?1 AND group_id = ?2";
}

fn read(row: &Row) -> Result<Group, Error> {
    Ok(Group {
        id: row.string("id")?,
        name: row.string("name")?,
        description: row.string("description")?,
        extra: object(row.text("extra")?)?,
    })
}

/// Adds a group.
pub(crate) fn insert(tx: &mut Tx<'_>, group: &Group) -> Result<(), Error> {
    let values = params![&group.id, &group.name, &group.description, text(&group.extra)];
    tx.execute(INSERT, values).map(|_| ())
}

/// Updates a group.
pub(crate) fn update(tx: &mut Tx<'_>, group: &Group) -> Result<(), Error> {
    let values = params![&group.id, &group.name, &group.description, text(&group.extra)];
    tx.execute(UPDATE, values).map(|_| ())
}

/// One group by id.
pub(crate) fn by_id(tx: &mut Tx<'_>, id: &str) -> Result<Option<Group>, Error> {
    tx.row(BY_ID, params![id])?.as_ref().map(read).transpose()
}

/// All groups, optionally by name.
pub(crate) fn list(tx: &mut Tx<'_>, name: Option<&str>) -> Result<Vec<Group>, Error> {
    tx.rows(LIST, params![name])?.iter().map(read).collect()
}

/// The groups of a user, optionally by name.
pub(crate) fn of_user(
    tx: &mut Tx<'_>,
    user: &str,
    name: Option<&str>,
) -> Result<Vec<Group>, Error> {
    tx.rows(OF_USER, params![user, name])?.iter().map(read).collect()
}

/// Deletes a group; returns false if it does not exist.
pub(crate) fn delete(tx: &mut Tx<'_>, id: &str) -> Result<bool, Error> {
    Ok(tx.execute(DELETE, params![id])? > 0)
}

/// Adds a member; idempotent.
pub(crate) fn join(tx: &mut Tx<'_>, user: &str, group: &str) -> Result<(), Error> {
    tx.execute(JOIN, params![user, group]).map(|_| ())
}

/// Removes a member; returns false if the user is not a member.
pub(crate) fn leave(tx: &mut Tx<'_>, user: &str, group: &str) -> Result<bool, Error> {
    Ok(tx.execute(LEAVE, params![user, group])? > 0)
}

/// True if the user is a member.
pub(crate) fn contains(tx: &mut Tx<'_>, user: &str, group: &str) -> Result<bool, Error> {
    Ok(tx.row(CONTAINS, params![user, group])?.is_some())
}
