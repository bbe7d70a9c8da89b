//! The attributes of the domain that can be changed.

use kilonova_store::{Error, Tx, params, statements};

use crate::DOMAIN_ID;

statements! {
    /// The description, if it was changed.
    DESCRIPTION = "SELECT description FROM identity_domains WHERE id = ?1";
    /// Sets the description.
    DESCRIBE = "INSERT INTO identity_domains (id, description) VALUES (?1, ?2)
        ON CONFLICT (id) DO UPDATE SET description = excluded.description";
}

/// The description, if it was changed.
pub(crate) fn description(tx: &mut Tx<'_>) -> Result<Option<String>, Error> {
    tx.row(DESCRIPTION, params![DOMAIN_ID])?.map(|row| row.string("description")).transpose()
}

/// Sets the description.
pub(crate) fn describe(tx: &mut Tx<'_>, description: &str) -> Result<(), Error> {
    tx.execute(DESCRIBE, params![DOMAIN_ID, description]).map(|_| ())
}
