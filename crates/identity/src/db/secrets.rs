//! Credentials of users for other services (`/v3/credentials`): EC2 keys, TOTP seeds, certificates. Of these, only the EC2
//! keys serve logins. Their content is encrypted.

use kilonova_store::{Error, Row, Tx, params, statements};
use serde_json::{Map, Value};

use super::{object, text};

/// A stored credential.
#[derive(Clone)]
pub(crate) struct StoredSecret {
    pub id: String,
    pub user_id: String,
    pub project_id: Option<String>,
    pub kind: String,
    pub encrypted_blob: String,
    pub extra: Map<String, Value>,
}

/// Selects [`StoredSecret`]s.
macro_rules! select {
    () => {
        "SELECT id, user_id, project_id, type, encrypted_blob, extra FROM identity_secrets"
    };
}

statements! {
    /// Adds a credential.
    INSERT = "INSERT INTO identity_secrets (id, user_id, project_id, type, encrypted_blob, extra)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    /// Changes a credential.
    UPDATE = "UPDATE identity_secrets SET user_id = ?2, project_id = ?3, type = ?4,
        encrypted_blob = ?5, extra = ?6 WHERE id = ?1";
    /// One credential by id.
    BY_ID = concat!(select!(), " WHERE id = ?1");
    /// All credentials.
    ALL = concat!(select!(), " ORDER BY id");
    /// The credentials of a user.
    OF_USER = concat!(select!(), " WHERE user_id = ?1 ORDER BY id");
    /// The number of a user's credentials.
    COUNT = "SELECT COUNT(*) AS count FROM identity_secrets WHERE user_id = ?1";
    /// Deletes a credential.
    DELETE = "DELETE FROM identity_secrets WHERE id = ?1";
}

fn read(row: &Row) -> Result<StoredSecret, Error> {
    Ok(StoredSecret {
        id: row.string("id")?,
        user_id: row.string("user_id")?,
        project_id: row.string_opt("project_id")?,
        kind: row.string("type")?,
        encrypted_blob: row.string("encrypted_blob")?,
        extra: object(row.text("extra")?)?,
    })
}

/// Adds a credential, or replaces the one with its id.
fn write(tx: &mut Tx<'_>, sql: &'static str, secret: &StoredSecret) -> Result<(), Error> {
    let StoredSecret { id, user_id, project_id, kind, encrypted_blob, extra } = secret;
    let project_id = project_id.clone();
    tx.execute(sql, params![id, user_id, project_id, kind, encrypted_blob, text(extra)])?;
    Ok(())
}

/// Adds a credential.
pub(crate) fn insert(tx: &mut Tx<'_>, secret: &StoredSecret) -> Result<(), Error> {
    write(tx, INSERT, secret)
}

/// Changes the credential with this id.
pub(crate) fn update(tx: &mut Tx<'_>, secret: &StoredSecret) -> Result<(), Error> {
    write(tx, UPDATE, secret)
}

/// One credential by id.
pub(crate) fn by_id(tx: &mut Tx<'_>, id: &str) -> Result<Option<StoredSecret>, Error> {
    tx.row(BY_ID, params![id])?.as_ref().map(read).transpose()
}

/// The credentials of a user, or of all users.
pub(crate) fn list(tx: &mut Tx<'_>, user: Option<&str>) -> Result<Vec<StoredSecret>, Error> {
    let rows = match user {
        None => tx.rows(ALL, params![]),
        Some(user) => tx.rows(OF_USER, params![user]),
    };
    rows?.iter().map(read).collect()
}

/// The number of a user's credentials.
pub(crate) fn count(tx: &mut Tx<'_>, user: &str) -> Result<i64, Error> {
    tx.row(COUNT, params![user])?.map_or(Ok(0), |row| row.int("count"))
}

/// Deletes a credential. Returns whether it existed.
pub(crate) fn delete(tx: &mut Tx<'_>, id: &str) -> Result<bool, Error> {
    Ok(tx.execute(DELETE, params![id])? > 0)
}
