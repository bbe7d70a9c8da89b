//! The row of `seal_current`: the id of the sealing key that seals.

use kilonova_store::{Error, Tx, params, statements};

statements! {
    /// The id.
    READ = "SELECT key_id FROM seal_current WHERE one = 1";
    /// Sets the id, unless it is set.
    FIRST = "INSERT INTO seal_current (one, key_id) VALUES (1, ?1) ON CONFLICT (one) DO NOTHING";
    /// Changes the id.
    SET = "UPDATE seal_current SET key_id = ?1 WHERE one = 1";
    /// Serializes the caller with changes of the sealing key.
    TOUCH = "UPDATE seal_current SET key_id = key_id WHERE one = 1 RETURNING key_id";
}

/// The id of the key that seals; `None` in a new cloud.
pub(crate) fn read(tx: &mut Tx<'_>) -> Result<Option<String>, Error> {
    tx.row(READ, params![])?.map(|row| row.string("key_id")).transpose()
}

/// Sets the id in a new cloud. Returns the cloud's id.
pub(crate) fn first(tx: &mut Tx<'_>, id: &str) -> Result<Option<String>, Error> {
    tx.execute(FIRST, params![id])?;
    read(tx)
}

/// Changes the id.
pub(crate) fn set(tx: &mut Tx<'_>, id: &str) -> Result<(), Error> {
    tx.execute(SET, params![id]).map(|_| ())
}

/// The id, for a transaction that seals: a concurrent change of the sealing key conflicts with it.
pub(crate) fn touch(tx: &mut Tx<'_>) -> Result<Option<String>, Error> {
    tx.row(TOUCH, params![])?.map(|row| row.string("key_id")).transpose()
}
