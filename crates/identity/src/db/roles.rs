//! Roles, and which role implies which.

use kilonova_store::{Error, Row, Tx, params, statements};

/// A role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Role {
    pub id: String,
    pub name: String,
    pub description: Option<String>,
}

statements! {
    /// A new role.
    INSERT = "INSERT INTO identity_roles (id, name, description) VALUES (?1, ?2, ?3)";
    /// A new role, unless its name is taken.
    INSERT_MISSING = "INSERT INTO identity_roles (id, name) VALUES (?1, ?2)
        ON CONFLICT (name) DO NOTHING";
    /// Another name or description.
    UPDATE = "UPDATE identity_roles SET name = ?2, description = ?3 WHERE id = ?1";
    /// One by id.
    BY_ID = "SELECT id, name, description FROM identity_roles WHERE id = ?1";
    /// One by name.
    BY_NAME = "SELECT id, name, description FROM identity_roles WHERE name = ?1";
    /// All, optionally by name.
    LIST = "SELECT id, name, description FROM identity_roles
        WHERE (CAST(?1 AS TEXT) IS NULL OR name = ?1) ORDER BY name";
    /// Gone.
    DELETE = "DELETE FROM identity_roles WHERE id = ?1";
    /// Whoever has the first has the second.
    IMPLY = "INSERT INTO identity_implied_roles (prior_id, implied_id) VALUES (?1, ?2)
        ON CONFLICT (prior_id, implied_id) DO NOTHING";
    /// The roles of a user on a project, with those that they imply.
    EFFECTIVE = "WITH RECURSIVE held (id) AS (
          SELECT role_id FROM identity_assignments WHERE user_id = ?1 AND project_id = ?2
          UNION
          SELECT i.implied_id FROM identity_implied_roles i JOIN held h ON i.prior_id = h.id)
        SELECT r.id, r.name, r.description FROM identity_roles r JOIN held h ON h.id = r.id
        ORDER BY r.name";
    /// The roles of an application credential, with those that they imply.
    OF_CREDENTIAL = "WITH RECURSIVE held (id) AS (
          SELECT role_id FROM identity_credential_roles WHERE credential_id = ?1
          UNION
          SELECT i.implied_id FROM identity_implied_roles i JOIN held h ON i.prior_id = h.id)
        SELECT r.id, r.name, r.description FROM identity_roles r JOIN held h ON h.id = r.id
        ORDER BY r.name";
}

fn read(row: &Row) -> Result<Role, Error> {
    Ok(Role { id: row.string(0)?, name: row.string(1)?, description: row.string_opt(2)? })
}

pub(crate) fn insert(tx: &mut Tx<'_>, role: &Role) -> Result<(), Error> {
    tx.execute(INSERT, params![&role.id, &role.name, role.description.clone()]).map(|_| ())
}

pub(crate) fn insert_missing(tx: &mut Tx<'_>, id: &str, name: &str) -> Result<(), Error> {
    tx.execute(INSERT_MISSING, params![id, name]).map(|_| ())
}

pub(crate) fn update(tx: &mut Tx<'_>, role: &Role) -> Result<(), Error> {
    tx.execute(UPDATE, params![&role.id, &role.name, role.description.clone()]).map(|_| ())
}

pub(crate) fn by_id(tx: &mut Tx<'_>, id: &str) -> Result<Option<Role>, Error> {
    tx.row(BY_ID, params![id])?.as_ref().map(read).transpose()
}

pub(crate) fn by_name(tx: &mut Tx<'_>, name: &str) -> Result<Option<Role>, Error> {
    tx.row(BY_NAME, params![name])?.as_ref().map(read).transpose()
}

pub(crate) fn list(tx: &mut Tx<'_>, name: Option<&str>) -> Result<Vec<Role>, Error> {
    tx.rows(LIST, params![name])?.iter().map(read).collect()
}

pub(crate) fn delete(tx: &mut Tx<'_>, id: &str) -> Result<bool, Error> {
    Ok(tx.execute(DELETE, params![id])? > 0)
}

pub(crate) fn imply(tx: &mut Tx<'_>, prior: &str, implied: &str) -> Result<(), Error> {
    tx.execute(IMPLY, params![prior, implied]).map(|_| ())
}

pub(crate) fn effective(tx: &mut Tx<'_>, user: &str, project: &str) -> Result<Vec<Role>, Error> {
    tx.rows(EFFECTIVE, params![user, project])?.iter().map(read).collect()
}

pub(crate) fn of_credential(tx: &mut Tx<'_>, credential: &str) -> Result<Vec<Role>, Error> {
    tx.rows(OF_CREDENTIAL, params![credential])?.iter().map(read).collect()
}
