//! Rows of `enroll_certificates`: issued certificates.

use jiff::Timestamp;
use kilonova_ids::HostName;
use kilonova_store::{Error, Row, Tx, params, statements};

use crate::revoked::RevokedCertificate;

/// Selects [`IssuedCertificate`]s.
macro_rules! select {
    () => {
        "SELECT serial, host, addresses, made_at, expires_at, revoked_at, authority FROM \
         enroll_certificates"
    };
}

/// The columns of a [`RevokedCertificate`].
macro_rules! revoked {
    () => {
        "serial, host, revoked_at, expires_at"
    };
}

statements! {
    /// Adds a certificate.
    ADD = "INSERT INTO enroll_certificates (serial, host, addresses, made_at, expires_at, authority)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    /// The certificates that have not expired.
    LIVE = concat!(select!(), " WHERE expires_at > ?1 ORDER BY host, made_at, serial");
    /// One certificate.
    READ = concat!(select!(), " WHERE serial = ?1");
    /// The valid certificates of a host.
    OF_HOST = concat!(select!(), " WHERE host = ?1 AND expires_at > ?2 AND revoked_at IS NULL");
    /// Another host with a valid certificate that has an address; the address is a pattern between
    /// spaces.
    WITH_ADDRESS = "SELECT host FROM enroll_certificates WHERE expires_at > ?1
        AND revoked_at IS NULL AND host <> ?2 AND ' ' || addresses || ' ' LIKE ?3 LIMIT 1";
    /// Revokes all certificates of a host.
    REVOKE = concat!("UPDATE enroll_certificates SET revoked_at = ?2
        WHERE host = ?1 AND revoked_at IS NULL RETURNING ", revoked!());
    /// The revoked certificates that have not expired.
    REVOKED = concat!("SELECT ", revoked!(), " FROM enroll_certificates
        WHERE revoked_at IS NOT NULL AND expires_at > ?1");
    /// Host names that equal this one in lower case.
    SPELLINGS = "SELECT DISTINCT host FROM enroll_certificates WHERE LOWER(host) = ?1";
    /// Deletes the certificates that expired before a time.
    DELETE_EXPIRED = "DELETE FROM enroll_certificates WHERE expires_at < ?1";
}

/// An issued certificate.
pub(crate) struct IssuedCertificate {
    pub serial: String,
    pub host: HostName,
    /// Separated by spaces.
    pub addresses: String,
    pub made_at: Timestamp,
    pub expires_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
    /// The number of the authority that signed it.
    pub authority: i64,
}

fn issued(row: &Row) -> Result<IssuedCertificate, Error> {
    Ok(IssuedCertificate {
        serial: row.string("serial")?,
        host: row.host("host")?,
        addresses: row.string("addresses")?,
        made_at: row.time("made_at")?,
        expires_at: row.time("expires_at")?,
        revoked_at: row.time_opt("revoked_at")?,
        authority: row.int("authority")?,
    })
}

/// Adds a certificate.
pub(crate) fn add(tx: &mut Tx<'_>, one: &IssuedCertificate) -> Result<(), Error> {
    let (serial, host) = (one.serial.as_str(), one.host.as_str());
    let addresses = one.addresses.as_str();
    tx.execute(ADD, params![serial, host, addresses, one.made_at, one.expires_at, one.authority])
        .map(|_| ())
}

/// The certificates that have not expired.
pub(crate) fn live(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<IssuedCertificate>, Error> {
    tx.rows(LIVE, params![now])?.iter().map(issued).collect()
}

/// One certificate.
pub(crate) fn read(tx: &mut Tx<'_>, serial: &str) -> Result<Option<IssuedCertificate>, Error> {
    tx.row(READ, params![serial])?.as_ref().map(issued).transpose()
}

/// The valid certificates of a host.
pub(crate) fn of_host(
    tx: &mut Tx<'_>,
    host: &HostName,
    now: Timestamp,
) -> Result<Vec<IssuedCertificate>, Error> {
    tx.rows(OF_HOST, params![host, now])?.iter().map(issued).collect()
}

/// Another host whose valid certificate has the address. The database compares and returns one row,
/// so that hosts that join at the same time do not each read all certificates.
pub(crate) fn other_with_address(
    tx: &mut Tx<'_>,
    host: &HostName,
    address: &str,
    now: Timestamp,
) -> Result<Option<HostName>, Error> {
    let pattern = format!("% {address} %");
    let row = tx.row(WITH_ADDRESS, params![now, host, pattern.as_str()])?;
    row.map(|row| row.host("host")).transpose()
}

fn revoked_row(row: &Row) -> Result<RevokedCertificate, Error> {
    Ok(RevokedCertificate {
        serial: row.string("serial")?,
        host: row.host("host")?,
        revoked_at: row.time("revoked_at")?,
        expires_at: row.time("expires_at")?,
    })
}

/// Revokes all certificates of a host and returns them.
pub(crate) fn revoke(
    tx: &mut Tx<'_>,
    host: &HostName,
    now: Timestamp,
) -> Result<Vec<RevokedCertificate>, Error> {
    tx.rows(REVOKE, params![host, now])?.iter().map(revoked_row).collect()
}

/// The revoked certificates that have not expired.
pub(crate) fn revoked(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<RevokedCertificate>, Error> {
    tx.rows(REVOKED, params![now])?.iter().map(revoked_row).collect()
}

/// Names of hosts with certificates that equal this one in lower case.
pub(crate) fn spellings(tx: &mut Tx<'_>, host: &HostName) -> Result<Vec<HostName>, Error> {
    let rows = tx.rows(SPELLINGS, params![host.to_ascii_lowercase()])?;
    rows.iter().map(|row| row.host("host")).collect()
}

/// Deletes the certificates that expired before a time.
pub(crate) fn delete_expired(tx: &mut Tx<'_>, before: Timestamp) -> Result<(), Error> {
    tx.execute(DELETE_EXPIRED, params![before]).map(|_| ())
}
