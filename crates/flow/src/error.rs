//! Errors of the journal.

/// A failure of the journal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server has an open operation already.
    #[error("server {0} has an operation in progress")]
    Busy(String),
    /// Another transaction advanced or ended the operation.
    #[error("operation {0} is no longer at the expected step")]
    Moved(String),
    /// A row has an unknown outcome.
    #[error("operation {0} has the unknown outcome {1:?}")]
    Outcome(String, String),
    /// A database error.
    #[error(transparent)]
    Store(#[from] kilonova_store::Error),
}
