//! Failures of a store. Their texts are for the operator.

/// A failure of a store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such object.
    #[error("{0}")]
    Missing(String),
    /// The store does not answer, or answers that it cannot serve now. A later try may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The store refuses: its credentials, its bucket or its settings are wrong.
    #[error("{0}")]
    Refused(String),
    /// The store is full.
    #[error("{0}")]
    Full(String),
    /// The settings cannot be used at all.
    #[error("{0}")]
    Settings(String),
    /// The thread pool for image files is full.
    #[error("image files: {0}")]
    Threads(#[from] kilonova_threads::Error),
    /// Reading or writing a file failed.
    #[error("image data: {0}")]
    Io(#[from] std::io::Error),
}
