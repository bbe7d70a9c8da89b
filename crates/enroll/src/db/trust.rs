//! Rows of `enroll_trust`: the authorities that each host has reported to trust.

use std::collections::HashMap;

use jiff::Timestamp;
use kilonova_ids::HostName;
use kilonova_store::{Error, Tx, params, statements};

statements! {
    /// All hosts.
    ALL = "SELECT host, mark FROM enroll_trust";
    /// One host.
    READ = "SELECT mark FROM enroll_trust WHERE host = ?1";
    /// Records the digest of the authorities that a host trusts.
    SET = "INSERT INTO enroll_trust (host, mark, at) VALUES (?1, ?2, ?3)
        ON CONFLICT (host) DO UPDATE SET mark = excluded.mark, at = excluded.at";
}

/// The digest of the authorities that each host trusts.
pub(crate) fn all(tx: &mut Tx<'_>) -> Result<HashMap<HostName, String>, Error> {
    tx.rows(ALL, params![])?
        .iter()
        .map(|row| Ok((row.host("host")?, row.string("mark")?)))
        .collect()
}

/// The digest of the authorities that a host trusts.
pub(crate) fn read(tx: &mut Tx<'_>, host: &HostName) -> Result<Option<String>, Error> {
    tx.row(READ, params![host])?.map(|row| row.string("mark")).transpose()
}

/// Records the digest of the authorities that a host trusts.
pub(crate) fn set(
    tx: &mut Tx<'_>,
    host: &HostName,
    mark: &str,
    now: Timestamp,
) -> Result<(), Error> {
    tx.execute(SET, params![host, mark, now]).map(|_| ())
}
