//! Errors of a store. Their texts are for the operator.

use std::io;

/// An error of a store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object does not exist.
    #[error("{0}")]
    Missing(String),
    /// The store does not answer, or answers that it is unavailable. A retry may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The store refuses the request: its credentials, its bucket or its settings are wrong.
    #[error("{0}")]
    Refused(String),
    /// The store has no space left, or the bucket's quota is used up.
    #[error("{0}")]
    Full(String),
    /// The configuration is invalid.
    #[error("{0}")]
    Settings(String),
    /// The queue of the thread pool for image files is full, or the pool has stopped.
    #[error("image files: {0}")]
    Threads(#[from] kilonova_threads::Error),
    /// Reading or writing a file failed.
    #[error("image data: {0}")]
    Io(#[from] io::Error),
}

impl Error {
    /// True if the store has no space left. For a file, its file system, its user's quota or the limit of
    /// its process can be the reason.
    pub fn is_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match self {
            Self::Full(_) => true,
            Self::Io(error) => matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge),
            Self::Missing(_)
            | Self::Unavailable(_)
            | Self::Refused(_)
            | Self::Settings(_)
            | Self::Threads(_) => false,
        }
    }
}
