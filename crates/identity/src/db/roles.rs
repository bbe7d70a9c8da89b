//! Roles, and the implications between them.

use kilonova_store::{Error, Row, Tx, params, statements};
use serde_json::{Map, Value};

use super::{object, text};

/// A role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Role {
    pub id: String,
    pub name: String,
    pub description: Option<String>,
    /// True if the role cannot be changed or deleted until this is reset.
    pub immutable: bool,
    pub extra: Map<String, Value>,
}

/// The columns of a [`Role`]; the table has the alias `r`.
macro_rules! columns {
    () => {
        "r.id, r.name, r.description, r.immutable, r.extra"
    };
}

statements! {
    /// Adds a role.
    INSERT = "INSERT INTO identity_roles (id, name, description, immutable, name_key, extra)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    /// Adds a default role, unless its name is taken.
    INSERT_MISSING = "INSERT INTO identity_roles (id, name, immutable, name_key)
        VALUES (?1, ?2, 1, ?2) ON CONFLICT (name) DO NOTHING";
    /// Updates all columns but the id.
    UPDATE = "UPDATE identity_roles SET name = ?2, description = ?3, immutable = ?4, name_key = ?5,
        extra = ?6 WHERE id = ?1";
    /// One role by id.
    BY_ID = concat!("SELECT ", columns!(), " FROM identity_roles r WHERE r.id = ?1");
    /// One role by name.
    BY_NAME = concat!("SELECT ", columns!(), " FROM identity_roles r WHERE r.name = ?1");
    /// Roles, optionally by name.
    LIST = concat!("SELECT ", columns!(), " FROM identity_roles r
        WHERE (CAST(?1 AS TEXT) IS NULL OR r.name = ?1) ORDER BY r.name");
    /// Deletes a role.
    DELETE = "DELETE FROM identity_roles WHERE id = ?1";
    /// Makes the first role imply the second.
    IMPLY = "INSERT INTO identity_implied_roles (prior_id, implied_id) VALUES (?1, ?2)
        ON CONFLICT (prior_id, implied_id) DO NOTHING";
    /// Deletes an implication.
    NO_LONGER_IMPLY = "DELETE FROM identity_implied_roles WHERE prior_id = ?1 AND implied_id = ?2";
    /// The direct implication between two roles, if it exists.
    IMPLIES = "SELECT 1 FROM identity_implied_roles WHERE prior_id = ?1 AND implied_id = ?2";
    /// The roles that a role implies directly.
    IMPLIED_BY = concat!("SELECT ", columns!(), " FROM identity_implied_roles i
        JOIN identity_roles r ON r.id = i.implied_id WHERE i.prior_id = ?1 ORDER BY r.name");
    /// The roles of a user on a target, direct and through groups, with implied ones.
    EFFECTIVE = concat!("WITH RECURSIVE held (id) AS (
          SELECT role_id FROM (
            SELECT role_id FROM identity_assignments WHERE user_id = ?1 AND project_id = ?2
            UNION ALL
            SELECT role_id FROM identity_user_grants WHERE user_id = ?1 AND target = ?2
            UNION ALL
            SELECT g.role_id FROM identity_memberships m
              JOIN identity_group_grants g ON g.group_id = m.group_id
              WHERE m.user_id = ?1 AND g.target = ?2) AS given
          UNION
          SELECT i.implied_id FROM identity_implied_roles i JOIN held h ON i.prior_id = h.id)
        SELECT ", columns!(), " FROM identity_roles r
        JOIN held h ON h.id = r.id ORDER BY r.name");
    /// The roles of an application credential, with implied ones.
    OF_CREDENTIAL = concat!("WITH RECURSIVE held (id) AS (
          SELECT role_id FROM identity_credential_roles WHERE credential_id = ?1
          UNION
          SELECT i.implied_id FROM identity_implied_roles i JOIN held h ON i.prior_id = h.id)
        SELECT ", columns!(), " FROM identity_roles r
        JOIN held h ON h.id = r.id ORDER BY r.name");
    /// The roles of a trust, without implied ones.
    OF_TRUST = concat!("SELECT ", columns!(), " FROM identity_trust_roles t
        JOIN identity_roles r ON r.id = t.role_id WHERE t.trust_id = ?1 ORDER BY r.name");
    /// The roles of a trust, with implied ones.
    EFFECTIVE_OF_TRUST = concat!("WITH RECURSIVE held (id) AS (
          SELECT role_id FROM identity_trust_roles WHERE trust_id = ?1
          UNION
          SELECT i.implied_id FROM identity_implied_roles i JOIN held h ON i.prior_id = h.id)
        SELECT ", columns!(), " FROM identity_roles r
        JOIN held h ON h.id = r.id ORDER BY r.name");
    /// A role and the roles that it implies.
    WITH_IMPLIED = concat!("WITH RECURSIVE held (id) AS (
          SELECT id FROM identity_roles WHERE id = ?1
          UNION
          SELECT i.implied_id FROM identity_implied_roles i JOIN held h ON i.prior_id = h.id)
        SELECT ", columns!(), " FROM identity_roles r
        JOIN held h ON h.id = r.id ORDER BY r.name");
}

fn read(row: &Row) -> Result<Role, Error> {
    Ok(Role {
        id: row.string("id")?,
        name: row.string("name")?,
        description: row.string_opt("description")?,
        immutable: row.bool("immutable")?,
        extra: object(row.text("extra")?)?,
    })
}

fn values(role: &Role) -> Vec<kilonova_store::Value> {
    params![
        &role.id,
        &role.name,
        role.description.clone(),
        role.immutable,
        role.name.to_lowercase(),
        text(&role.extra),
    ]
    .to_vec()
}

/// Adds a role.
pub(crate) fn insert(tx: &mut Tx<'_>, role: &Role) -> Result<(), Error> {
    tx.execute(INSERT, &values(role)).map(|_| ())
}

/// Adds a default role unless its name is taken; returns true if it was added.
pub(crate) fn insert_missing(tx: &mut Tx<'_>, id: &str, name: &str) -> Result<bool, Error> {
    Ok(tx.execute(INSERT_MISSING, params![id, name])? > 0)
}

/// Updates a role.
pub(crate) fn update(tx: &mut Tx<'_>, role: &Role) -> Result<(), Error> {
    tx.execute(UPDATE, &values(role)).map(|_| ())
}

/// One role by id.
pub(crate) fn by_id(tx: &mut Tx<'_>, id: &str) -> Result<Option<Role>, Error> {
    tx.row(BY_ID, params![id])?.as_ref().map(read).transpose()
}

/// One role by name.
pub(crate) fn by_name(tx: &mut Tx<'_>, name: &str) -> Result<Option<Role>, Error> {
    tx.row(BY_NAME, params![name])?.as_ref().map(read).transpose()
}

/// Roles, optionally by name.
pub(crate) fn list(tx: &mut Tx<'_>, name: Option<&str>) -> Result<Vec<Role>, Error> {
    tx.rows(LIST, params![name])?.iter().map(read).collect()
}

/// Deletes a role; returns false if it does not exist.
pub(crate) fn delete(tx: &mut Tx<'_>, id: &str) -> Result<bool, Error> {
    Ok(tx.execute(DELETE, params![id])? > 0)
}

/// Makes the first role imply the second; returns true if the implication is new.
pub(crate) fn imply(tx: &mut Tx<'_>, prior: &str, implied: &str) -> Result<bool, Error> {
    Ok(tx.execute(IMPLY, params![prior, implied])? > 0)
}

/// Deletes an implication.
pub(crate) fn no_longer_imply(tx: &mut Tx<'_>, prior: &str, implied: &str) -> Result<(), Error> {
    tx.execute(NO_LONGER_IMPLY, params![prior, implied]).map(|_| ())
}

/// True if the first role implies the second directly.
pub(crate) fn implies(tx: &mut Tx<'_>, prior: &str, implied: &str) -> Result<bool, Error> {
    Ok(tx.row(IMPLIES, params![prior, implied])?.is_some())
}

/// The roles that a role implies directly.
pub(crate) fn implied_by(tx: &mut Tx<'_>, prior: &str) -> Result<Vec<Role>, Error> {
    tx.rows(IMPLIED_BY, params![prior])?.iter().map(read).collect()
}

/// The effective roles; `target` is the value of [`super::assignments::Target::column`].
pub(crate) fn effective(tx: &mut Tx<'_>, user: &str, target: &str) -> Result<Vec<Role>, Error> {
    tx.rows(EFFECTIVE, params![user, target])?.iter().map(read).collect()
}

/// The roles of an application credential, with implied ones.
pub(crate) fn of_credential(tx: &mut Tx<'_>, credential: &str) -> Result<Vec<Role>, Error> {
    tx.rows(OF_CREDENTIAL, params![credential])?.iter().map(read).collect()
}

/// The roles of a trust, without implied ones.
pub(crate) fn of_trust(tx: &mut Tx<'_>, trust: &str) -> Result<Vec<Role>, Error> {
    tx.rows(OF_TRUST, params![trust])?.iter().map(read).collect()
}

/// The roles of a trust, with implied ones.
pub(crate) fn effective_of_trust(tx: &mut Tx<'_>, trust: &str) -> Result<Vec<Role>, Error> {
    tx.rows(EFFECTIVE_OF_TRUST, params![trust])?.iter().map(read).collect()
}

/// A role and the roles that it implies.
pub(crate) fn with_implied(tx: &mut Tx<'_>, role: &str) -> Result<Vec<Role>, Error> {
    tx.rows(WITH_IMPLIED, params![role])?.iter().map(read).collect()
}
