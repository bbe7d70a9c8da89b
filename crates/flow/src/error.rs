//! What can go wrong with an operation.

/// A failure of the journal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The subject has an open operation already.
    #[error("server {0} has an operation in progress")]
    Busy(String),
    /// The operation was moved on by somebody else.
    #[error("operation {0} is no longer at the expected step")]
    Moved(String),
    /// The database.
    #[error(transparent)]
    Store(#[from] kilonova_store::Error),
}
