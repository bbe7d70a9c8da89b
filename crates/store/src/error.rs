//! The errors of the database itself. The services decide the *meaning* of an error.

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be opened; the text is for the operator.
    #[error("{0}")]
    Open(String),
    /// The database cannot be copied, or is an incomplete copy; the text is for the operator.
    #[error("{0}")]
    Copy(String),
    /// The schema cannot be updated.
    #[error("migration {name} failed: {reason}")]
    Migration {
        /// The migration.
        name: String,
        /// The reason.
        reason: String,
    },
    /// A row with this unique key already exists.
    #[error("unique key violated: {0}")]
    Unique(String),
    /// A statement would delete a referenced row, or its reference names no row.
    #[error("foreign key violated: {0}")]
    Reference(String),
    /// The database requires the transaction to run again; the store reruns it itself.
    #[error("transaction must be retried: {0}")]
    Retry(String),
    /// The disk of the database is full. The transaction is rolled back.
    #[error("the database has no space left: {0}")]
    Full(String),
    /// The database is unavailable: it is unreachable, has no free connection, or is overloaded. The same
    /// request may succeed later. The transaction is rolled back, unless the connection was lost during the
    /// commit and its outcome cannot be looked up.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// A statement exceeded its time limit, or waited too long for a lock. The transaction is
    /// rolled back, and the same request may succeed later.
    #[error("the database is too slow: {0}")]
    TooSlow(String),
    /// The file is damaged, or is not a database: it needs repair.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// A row has an unexpected shape: a bug, not an input error.
    #[error("unexpected row: {0}")]
    Shape(String),
    /// Any other error.
    #[error("database error: {0}")]
    Other(String),
    /// A crash plan has killed this process ([`crate::testing`]).
    #[error("the crash plan has killed this process")]
    Dead,
}

/// The severity of an error, which determines the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The disk is full.
    DiskFull,
    /// The same request may succeed later.
    Temporary,
    /// A bug, or a database that needs repair.
    Permanent,
}

impl Error {
    /// The severity of this error.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Full(_) => Severity::DiskFull,
            Self::Unavailable(_) | Self::TooSlow(_) | Self::Retry(_) => Severity::Temporary,
            Self::Open(_)
            | Self::Copy(_)
            | Self::Migration { .. }
            | Self::Unique(_)
            | Self::Reference(_)
            | Self::Damaged(_)
            | Self::Shape(_)
            | Self::Other(_)
            | Self::Dead => Severity::Permanent,
        }
    }

    /// A copy of the error, for another transaction of the same group, or for another statement of a
    /// transaction that has failed.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Full(text) => Self::Full(text.clone()),
            Self::Unavailable(text) => Self::Unavailable(text.clone()),
            Self::TooSlow(text) => Self::TooSlow(text.clone()),
            Self::Retry(text) => Self::Retry(text.clone()),
            Self::Unique(text) => Self::Unique(text.clone()),
            Self::Reference(text) => Self::Reference(text.clone()),
            Self::Damaged(text) => Self::Damaged(text.clone()),
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::{ErrorCode, ffi};
        if let rusqlite::Error::SqliteFailure(code, _) = &error {
            match code.extended_code {
                ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY => {
                    return Self::Unique(error.to_string());
                }
                ffi::SQLITE_CONSTRAINT_FOREIGNKEY | ffi::SQLITE_CONSTRAINT_TRIGGER => {
                    return Self::Reference(error.to_string());
                }
                _ => {}
            }
            match code.code {
                ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
                    return Self::Retry(error.to_string());
                }
                ErrorCode::DiskFull => return Self::Full(error.to_string()),
                ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
                    return Self::Damaged(error.to_string());
                }
                ErrorCode::OutOfMemory => return Self::Unavailable(error.to_string()),
                _ => {}
            }
        }
        Self::Other(error.to_string())
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        use tokio_postgres::error::SqlState;
        let text = error.as_db_error().map_or_else(
            || error.to_string(),
            |db| format!("{}: {}", db.code().code(), db.message()),
        );
        match error.code() {
            Some(&SqlState::UNIQUE_VIOLATION) => Self::Unique(text),
            Some(&SqlState::FOREIGN_KEY_VIOLATION) => Self::Reference(text),
            Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED) => {
                Self::Retry(text)
            }
            Some(&SqlState::DISK_FULL) => Self::Full(text),
            Some(&SqlState::QUERY_CANCELED | &SqlState::LOCK_NOT_AVAILABLE) => Self::TooSlow(text),
            Some(
                &SqlState::READ_ONLY_SQL_TRANSACTION
                | &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
            ) => Self::Unavailable(text),
            Some(code) if is_outage(code) => Self::Unavailable(text),
            // The server did not answer: the connection is lost.
            None if error.is_closed() || is_io(&error) => Self::Unavailable(text),
            _ => Self::Other(text),
        }
    }
}

/// True for the error classes of connections, resources and the operator's intervention (start,
/// shutdown, recovery).
pub(crate) fn is_outage(code: &tokio_postgres::error::SqlState) -> bool {
    matches!(code.code().get(..2), Some("08" | "53" | "57"))
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    use std::error::Error as _;
    error.source().is_some_and(|source| source.is::<std::io::Error>())
}
