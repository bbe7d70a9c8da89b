//! The row of `enroll_authority`: the fingerprint of the authority whose certificate controllers
//! present, for controllers of earlier versions. The row is also the lock of all issuers of
//! certificates.

use kilonova_store::{Error, Tx, params, statements};

statements! {
    /// The fingerprint.
    READ = "SELECT fingerprint FROM enroll_authority WHERE one = 1";
    /// Sets the fingerprint, unless it is set.
    SET = "INSERT INTO enroll_authority (one, fingerprint) VALUES (1, ?1)
        ON CONFLICT (one) DO NOTHING";
    /// Changes the fingerprint.
    REPLACE = "UPDATE enroll_authority SET fingerprint = ?1 WHERE one = 1";
    /// Serializes transactions that issue certificates.
    TOUCH = "UPDATE enroll_authority SET fingerprint = fingerprint WHERE one = 1";
}

/// The fingerprint of the cloud's authority, if it has one.
pub(crate) fn read(tx: &mut Tx<'_>) -> Result<Option<String>, Error> {
    tx.row(READ, params![])?.map(|row| row.string("fingerprint")).transpose()
}

/// Sets the fingerprint, unless it is set.
pub(crate) fn set(tx: &mut Tx<'_>, fingerprint: &str) -> Result<(), Error> {
    tx.execute(SET, params![fingerprint]).map(|_| ())
}

/// Changes the fingerprint.
pub(crate) fn replace(tx: &mut Tx<'_>, fingerprint: &str) -> Result<(), Error> {
    tx.execute(REPLACE, params![fingerprint]).map(|_| ())
}

/// Serializes the caller with other issuers, so that no two hosts get the same address.
pub(crate) fn touch(tx: &mut Tx<'_>) -> Result<(), Error> {
    tx.execute(TOUCH, params![]).map(|_| ())
}
