//! Rows of `enroll_certificates`: issued certificates.

use kilonova_store::{Error, Row, Tx, params, statements};

use crate::revoked::Ended;

statements! {
    /// Adds one.
    ADD = "INSERT INTO enroll_certificates (serial, host, addresses, made_at, expires_at)
        VALUES (?1, ?2, ?3, ?4, ?5)";
    /// Unexpired ones.
    LIVE = "SELECT serial, host, addresses, made_at, expires_at, revoked_at
        FROM enroll_certificates WHERE expires_at > ?1 ORDER BY host, made_at, serial";
    /// Valid ones of a host.
    OF_HOST = "SELECT serial, host, addresses, made_at, expires_at, revoked_at
        FROM enroll_certificates WHERE host = ?1 AND expires_at > ?2 AND revoked_at IS NULL";
    /// Revokes all of a host.
    REVOKE = "UPDATE enroll_certificates SET revoked_at = ?2
        WHERE host = ?1 AND revoked_at IS NULL RETURNING serial, host, revoked_at, expires_at";
    /// Revoked and unexpired ones.
    REVOKED = "SELECT serial, host, revoked_at, expires_at FROM enroll_certificates
        WHERE revoked_at IS NOT NULL AND expires_at > ?1";
    /// Host names that equal this one in lower case.
    SPELLINGS = "SELECT DISTINCT host FROM enroll_certificates WHERE LOWER(host) = ?1";
    /// Deletes those that expired long ago.
    FORGET = "DELETE FROM enroll_certificates WHERE expires_at < ?1";
}

/// An issued certificate.
pub(crate) struct Given {
    pub serial: String,
    pub host: String,
    /// Separated by spaces.
    pub addresses: String,
    pub made_at: i64,
    pub expires_at: i64,
    pub revoked_at: Option<i64>,
}

fn given(row: &Row) -> Result<Given, Error> {
    Ok(Given {
        serial: row.string(0)?,
        host: row.string(1)?,
        addresses: row.string(2)?,
        made_at: row.int(3)?,
        expires_at: row.int(4)?,
        revoked_at: row.int_opt(5)?,
    })
}

pub(crate) fn add(tx: &mut Tx<'_>, one: &Given) -> Result<(), Error> {
    let (serial, host) = (one.serial.as_str(), one.host.as_str());
    let addresses = one.addresses.as_str();
    tx.execute(ADD, params![serial, host, addresses, one.made_at, one.expires_at]).map(|_| ())
}

pub(crate) fn live(tx: &mut Tx<'_>, now: i64) -> Result<Vec<Given>, Error> {
    tx.rows(LIVE, params![now])?.iter().map(given).collect()
}

pub(crate) fn of_host(tx: &mut Tx<'_>, host: &str, now: i64) -> Result<Vec<Given>, Error> {
    tx.rows(OF_HOST, params![host, now])?.iter().map(given).collect()
}

fn ended(row: &Row) -> Result<Ended, Error> {
    Ok(Ended {
        serial: row.string(0)?,
        host: row.string(1)?,
        revoked_at: row.int(2)?,
        expires_at: row.int(3)?,
    })
}

/// Revokes all certificates of a host and returns them.
pub(crate) fn revoke(tx: &mut Tx<'_>, host: &str, now: i64) -> Result<Vec<Ended>, Error> {
    tx.rows(REVOKE, params![host, now])?.iter().map(ended).collect()
}

pub(crate) fn revoked(tx: &mut Tx<'_>, now: i64) -> Result<Vec<Ended>, Error> {
    tx.rows(REVOKED, params![now])?.iter().map(ended).collect()
}

/// Names of hosts with certificates that equal this one in lower case.
pub(crate) fn spellings(tx: &mut Tx<'_>, host: &str) -> Result<Vec<String>, Error> {
    let rows = tx.rows(SPELLINGS, params![host.to_ascii_lowercase()])?;
    rows.iter().map(|row| row.string(0)).collect()
}

pub(crate) fn forget(tx: &mut Tx<'_>, before: i64) -> Result<(), Error> {
    tx.execute(FORGET, params![before]).map(|_| ())
}
