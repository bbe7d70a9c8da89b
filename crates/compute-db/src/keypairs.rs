//! Key pairs: public keys by user and name.

use jiff::Timestamp;
use kilonova_store::{Row, Tx, params};

use crate::Error;

/// Selects [`Keypair`]s.
macro_rules! select {
    () => {
        "SELECT number, user_id, name, kind, public_key, fingerprint, created_at FROM keypairs"
    };
}

kilonova_store::statements! {
    /// A user's key pairs, by name.
    OF_USER = concat!(select!(), " WHERE user_id = ?1 ORDER BY name");
    /// One key pair.
    BY_NAME = concat!(select!(), " WHERE user_id = ?1 AND name = ?2");
    /// Number of a user's key pairs.
    COUNT = "SELECT COUNT(*) AS count FROM keypairs WHERE user_id = ?1";
    /// Inserts a key pair.
    INSERT = "INSERT INTO keypairs (user_id, name, kind, public_key, fingerprint, created_at)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    /// Deletes a key pair.
    DELETE = "DELETE FROM keypairs WHERE user_id = ?1 AND name = ?2";
}

/// A key pair, of which this program stores only the public half.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keypair {
    /// Integer id for the detail view; assigned by the database.
    pub number: i64,
    /// Owner.
    pub user_id: String,
    /// Name, unique per owner.
    pub name: String,
    /// `ssh` or `x509`.
    pub kind: String,
    /// The public key as the client sent it.
    pub public_key: String,
    /// The fingerprint, in the form `aa:bb:…`.
    pub fingerprint: String,
    /// When it was created.
    pub created_at: Timestamp,
}

fn keypair(row: &Row) -> Result<Keypair, Error> {
    Ok(Keypair {
        number: row.int("number")?,
        user_id: row.string("user_id")?,
        name: row.string("name")?,
        kind: row.string("kind")?,
        public_key: row.string("public_key")?,
        fingerprint: row.string("fingerprint")?,
        created_at: row.time("created_at")?,
    })
}

/// A user's key pairs, by name.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn of_user(tx: &mut Tx<'_>, user_id: &str) -> Result<Vec<Keypair>, Error> {
    tx.rows(OF_USER, params![user_id])?.iter().map(keypair).collect()
}

/// One key pair.
pub fn by_name(tx: &mut Tx<'_>, user_id: &str, name: &str) -> Result<Option<Keypair>, Error> {
    tx.row(BY_NAME, params![user_id, name])?.as_ref().map(keypair).transpose()
}

/// Number of a user's key pairs.
pub fn count(tx: &mut Tx<'_>, user_id: &str) -> Result<i64, Error> {
    Ok(tx.row(COUNT, params![user_id])?.map_or(Ok(0), |row| row.int("count"))?)
}

/// Inserts a key pair; its number is ignored.
pub fn insert(tx: &mut Tx<'_>, keypair: &Keypair) -> Result<(), Error> {
    tx.execute(
        INSERT,
        params![
            &keypair.user_id,
            &keypair.name,
            &keypair.kind,
            &keypair.public_key,
            &keypair.fingerprint,
            keypair.created_at,
        ],
    )?;
    Ok(())
}

/// Deletes a key pair; returns whether it existed.
pub fn delete(tx: &mut Tx<'_>, user_id: &str, name: &str) -> Result<bool, Error> {
    Ok(tx.execute(DELETE, params![user_id, name])? == 1)
}
