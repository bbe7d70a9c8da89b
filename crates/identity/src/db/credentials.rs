//! Application credentials. Only a login reads the hash of the secret.

use jiff::Timestamp;
use kilonova_store::{Error, Row, Tx, params, statements};

/// An application credential, without its secret.
#[derive(Debug, Clone)]
pub(crate) struct Credential {
    pub id: String,
    pub name: String,
    pub user_id: String,
    pub project_id: String,
    pub description: Option<String>,
    pub expires_at: Option<Timestamp>,
    pub unrestricted: bool,
}

/// Selects [`Credential`]s.
macro_rules! select {
    () => {
        "SELECT id, name, user_id, project_id, description, expires_at, unrestricted FROM \
         identity_credentials"
    };
}

statements! {
    /// Adds a credential.
    INSERT = "INSERT INTO identity_credentials
        (id, name, user_id, project_id, description, expires_at, unrestricted, secret_hash)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    /// Adds a role to a credential.
    INSERT_ROLE = "INSERT INTO identity_credential_roles (credential_id, role_id) VALUES (?1, ?2)
        ON CONFLICT (credential_id, role_id) DO NOTHING";
    /// One credential by id.
    BY_ID = concat!(select!(), " WHERE id = ?1");
    /// The credentials of a user, optionally by name.
    LIST = concat!(select!(), "
        WHERE user_id = ?1 AND (CAST(?2 AS TEXT) IS NULL OR name = ?2) ORDER BY name");
    /// The number of a user's credentials.
    COUNT = "SELECT COUNT(*) AS count FROM identity_credentials WHERE user_id = ?1";
    /// The hash of the secret.
    SECRET_HASH = "SELECT secret_hash FROM identity_credentials WHERE id = ?1";
    /// The credential's roles, without implied ones.
    ROLES = "SELECT r.id, r.name FROM identity_credential_roles c
        JOIN identity_roles r ON r.id = c.role_id WHERE c.credential_id = ?1 ORDER BY r.name";
    /// Deletes a credential of a user.
    DELETE = "DELETE FROM identity_credentials WHERE id = ?1 AND user_id = ?2";
    /// Deletes all credentials that grant a role.
    DELETE_WITH_ROLE = "DELETE FROM identity_credentials WHERE id IN
        (SELECT credential_id FROM identity_credential_roles WHERE role_id = ?1)";
}

fn read(row: &Row) -> Result<Credential, Error> {
    Ok(Credential {
        id: row.string("id")?,
        name: row.string("name")?,
        user_id: row.string("user_id")?,
        project_id: row.string("project_id")?,
        description: row.string_opt("description")?,
        expires_at: row.time_opt("expires_at")?,
        unrestricted: row.bool("unrestricted")?,
    })
}

/// Adds a credential with its roles and the hash of its secret.
pub(crate) fn insert(
    tx: &mut Tx<'_>,
    credential: &Credential,
    roles: &[String],
    hash: &str,
) -> Result<(), Error> {
    tx.execute(
        INSERT,
        params![
            &credential.id,
            &credential.name,
            &credential.user_id,
            &credential.project_id,
            credential.description.clone(),
            credential.expires_at,
            credential.unrestricted,
            hash,
        ],
    )?;
    for role in roles {
        tx.execute(INSERT_ROLE, params![&credential.id, role])?;
    }
    Ok(())
}

/// One credential by id.
pub(crate) fn by_id(tx: &mut Tx<'_>, id: &str) -> Result<Option<Credential>, Error> {
    tx.row(BY_ID, params![id])?.as_ref().map(read).transpose()
}

/// The credentials of a user, optionally by name.
pub(crate) fn list(
    tx: &mut Tx<'_>,
    user: &str,
    name: Option<&str>,
) -> Result<Vec<Credential>, Error> {
    tx.rows(LIST, params![user, name])?.iter().map(read).collect()
}

/// The number of a user's credentials.
pub(crate) fn count(tx: &mut Tx<'_>, user: &str) -> Result<i64, Error> {
    tx.row(COUNT, params![user])?.map_or(Ok(0), |row| row.int("count"))
}

/// The hash of the secret.
pub(crate) fn secret_hash(tx: &mut Tx<'_>, id: &str) -> Result<Option<String>, Error> {
    tx.row(SECRET_HASH, params![id])?.map(|row| row.string("secret_hash")).transpose()
}

/// Ids and names of the credential's roles.
pub(crate) fn roles(tx: &mut Tx<'_>, id: &str) -> Result<Vec<(String, String)>, Error> {
    tx.rows(ROLES, params![id])?
        .iter()
        .map(|row| Ok((row.string("id")?, row.string("name")?)))
        .collect()
}

/// Deletes a credential of a user; returns false if it does not exist.
pub(crate) fn delete(tx: &mut Tx<'_>, id: &str, user: &str) -> Result<bool, Error> {
    Ok(tx.execute(DELETE, params![id, user])? > 0)
}

/// Deletes all credentials that grant a role.
pub(crate) fn delete_with_role(tx: &mut Tx<'_>, role: &str) -> Result<(), Error> {
    tx.execute(DELETE_WITH_ROLE, params![role]).map(|_| ())
}
