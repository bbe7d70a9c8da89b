//! Errors of sealed secrets. Their texts are for the operator and contain no secret.

use crate::KeyId;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] kilonova_store::Error),
    /// There is no usable sealing key; the text says what to do.
    #[error("{0}")]
    Key(String),
    /// A secret is sealed with a key that this controller does not have.
    #[error(
        "the secrets of this cloud are sealed with key {id}, which is not in {place}: copy the key \
         file of a controller that has it, with mode 0600"
    )]
    Unknown {
        /// The key.
        id: KeyId,
        /// Where the keys of this controller come from.
        place: String,
    },
    /// A sealed secret was modified, or moved to another row.
    #[error(
        "the sealed secret {0} is damaged or was moved: restore the database from a good backup"
    )]
    Damaged(String),
}
