//! The one row of `enroll_authority`: which authority this cloud has.

use kilonova_store::{Error, Tx, params, statements};

statements! {
    /// It.
    READ = "SELECT fingerprint FROM enroll_authority WHERE one = 1";
    /// The first one stays.
    SET = "INSERT INTO enroll_authority (one, fingerprint) VALUES (1, ?1)
        ON CONFLICT (one) DO NOTHING";
    /// Makes whoever gives certificates come one after the other.
    TOUCH = "UPDATE enroll_authority SET fingerprint = fingerprint WHERE one = 1";
}

pub(crate) fn read(tx: &mut Tx<'_>) -> Result<Option<String>, Error> {
    tx.row(READ, params![])?.map(|row| row.string(0)).transpose()
}

pub(crate) fn set(tx: &mut Tx<'_>, fingerprint: &str) -> Result<(), Error> {
    tx.execute(SET, params![fingerprint]).map(|_| ())
}

/// No two hosts may get one address, at the same time either.
pub(crate) fn touch(tx: &mut Tx<'_>) -> Result<(), Error> {
    tx.execute(TOUCH, params![]).map(|_| ())
}
