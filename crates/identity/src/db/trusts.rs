//! Trusts: a user lets another act on one project with some of the user's roles.

use jiff::Timestamp;
use kilonova_store::{Error, Row, Tx, params, statements};
use serde_json::{Map, Value};

use super::{object, text};

/// A stored trust, without its roles.
#[derive(Debug, Clone)]
pub(crate) struct Trust {
    pub id: String,
    pub trustor: String,
    pub trustee: String,
    pub project: Option<String>,
    /// The trust that this one redelegates.
    pub parent: Option<String>,
    pub impersonation: bool,
    pub remaining_uses: Option<i64>,
    pub expires_at: Option<Timestamp>,
    pub redelegation_count: i64,
    pub extra: Map<String, Value>,
}

/// Selects [`Trust`]s.
macro_rules! select {
    () => {
        "SELECT id, trustor_id, trustee_id, project_id, parent_id, impersonation, \
         remaining_uses, expires_at, redelegation_count, extra FROM identity_trusts"
    };
}

statements! {
    /// Adds a trust.
    INSERT = "INSERT INTO identity_trusts (id, trustor_id, trustee_id, project_id, parent_id,
        impersonation, remaining_uses, expires_at, redelegation_count, extra)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    /// Adds a role to a trust.
    INSERT_ROLE = "INSERT INTO identity_trust_roles (trust_id, role_id) VALUES (?1, ?2)
        ON CONFLICT (trust_id, role_id) DO NOTHING";
    /// One trust by id.
    BY_ID = concat!(select!(), " WHERE id = ?1");
    /// All trusts.
    ALL = concat!(select!(), " ORDER BY id");
    /// The trusts that a user gave.
    OF_TRUSTOR = concat!(select!(), " WHERE trustor_id = ?1 ORDER BY id");
    /// The number of trusts that a user gave.
    COUNT = "SELECT COUNT(*) AS count FROM identity_trusts WHERE trustor_id = ?1";
    /// The trusts that a user received.
    OF_TRUSTEE = concat!(select!(), " WHERE trustee_id = ?1 ORDER BY id");
    /// Decrements the remaining uses, if any are left.
    CONSUME = "UPDATE identity_trusts SET remaining_uses = remaining_uses - 1
        WHERE id = ?1 AND remaining_uses > 0";
    /// Deletes a trust and, by cascade, its redelegations.
    DELETE = "DELETE FROM identity_trusts WHERE id = ?1";
}

fn read(row: &Row) -> Result<Trust, Error> {
    Ok(Trust {
        id: row.string("id")?,
        trustor: row.string("trustor_id")?,
        trustee: row.string("trustee_id")?,
        project: row.string_opt("project_id")?,
        parent: row.string_opt("parent_id")?,
        impersonation: row.bool("impersonation")?,
        remaining_uses: row.int_opt("remaining_uses")?,
        expires_at: row.time_opt("expires_at")?,
        redelegation_count: row.int("redelegation_count")?,
        extra: object(row.text("extra")?)?,
    })
}

/// Adds a trust with its roles.
pub(crate) fn insert(tx: &mut Tx<'_>, trust: &Trust, roles: &[String]) -> Result<(), Error> {
    tx.execute(
        INSERT,
        params![
            &trust.id,
            &trust.trustor,
            &trust.trustee,
            trust.project.clone(),
            trust.parent.clone(),
            trust.impersonation,
            trust.remaining_uses,
            trust.expires_at,
            trust.redelegation_count,
            text(&trust.extra),
        ],
    )?;
    for role in roles {
        tx.execute(INSERT_ROLE, params![&trust.id, role])?;
    }
    Ok(())
}

/// One trust by id.
pub(crate) fn by_id(tx: &mut Tx<'_>, id: &str) -> Result<Option<Trust>, Error> {
    tx.row(BY_ID, params![id])?.as_ref().map(read).transpose()
}

/// All trusts.
pub(crate) fn all(tx: &mut Tx<'_>) -> Result<Vec<Trust>, Error> {
    tx.rows(ALL, params![])?.iter().map(read).collect()
}

/// The trusts that a user gave.
pub(crate) fn of_trustor(tx: &mut Tx<'_>, user: &str) -> Result<Vec<Trust>, Error> {
    tx.rows(OF_TRUSTOR, params![user])?.iter().map(read).collect()
}

/// The number of trusts that a user gave.
pub(crate) fn count(tx: &mut Tx<'_>, user: &str) -> Result<i64, Error> {
    tx.row(COUNT, params![user])?.map_or(Ok(0), |row| row.int("count"))
}

/// The trusts that a user received.
pub(crate) fn of_trustee(tx: &mut Tx<'_>, user: &str) -> Result<Vec<Trust>, Error> {
    tx.rows(OF_TRUSTEE, params![user])?.iter().map(read).collect()
}

/// Decrements the remaining uses; returns false if none are left or the uses are not limited.
pub(crate) fn consume(tx: &mut Tx<'_>, id: &str) -> Result<bool, Error> {
    Ok(tx.execute(CONSUME, params![id])? > 0)
}

/// Deletes a trust and its redelegations; returns false if it does not exist.
pub(crate) fn delete(tx: &mut Tx<'_>, id: &str) -> Result<bool, Error> {
    Ok(tx.execute(DELETE, params![id])? > 0)
}
