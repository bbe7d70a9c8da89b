//! What can go wrong with the database itself; what it *means* is for the services to say.

/// A failure of the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database cannot be opened; the text is for the operator.
    #[error("{0}")]
    Open(String),
    /// The schema cannot be brought up to date.
    #[error("migration {name} failed: {reason}")]
    Migration {
        /// Which one.
        name: String,
        /// Why.
        reason: String,
    },
    /// A unique key already has this value.
    #[error("unique key violated: {0}")]
    Unique(String),
    /// A row that others refer to was to be removed, or a reference names no row.
    #[error("foreign key violated: {0}")]
    Reference(String),
    /// The database wants the transaction run again; the store does so by itself.
    #[error("transaction has to be run again: {0}")]
    Retry(String),
    /// The disk of the database is full. Nothing of the transaction is kept.
    #[error("the database has no space left: {0}")]
    Full(String),
    /// The database cannot be asked now: it is away, has no connection to spare, or has too much to
    /// do. Nothing of the transaction is kept, and the same request may work later.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// A row has another shape than the caller expects: a bug, not an input.
    #[error("unexpected row: {0}")]
    Shape(String),
    /// Anything else.
    #[error("database error: {0}")]
    Other(String),
    /// A crash plan says that this process is dead ([`crate::testing`]).
    #[error("process is dead by plan")]
    Dead,
}

/// What a failure asks of whoever is to answer for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Somebody has to make room on the disk.
    Full,
    /// The same request may work in a while.
    Passing,
    /// A bug, or a database that has to be repaired.
    Lasting,
}

impl Error {
    /// What is to be said of it to the outside.
    pub fn trouble(&self) -> Trouble {
        match self {
            Self::Full(_) => Trouble::Full,
            Self::Unavailable(_) | Self::Retry(_) => Trouble::Passing,
            Self::Open(_)
            | Self::Migration { .. }
            | Self::Unique(_)
            | Self::Reference(_)
            | Self::Shape(_)
            | Self::Other(_)
            | Self::Dead => Trouble::Lasting,
        }
    }

    /// The same failure, for another transaction that shares its fate.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Full(text) => Self::Full(text.clone()),
            Self::Unavailable(text) => Self::Unavailable(text.clone()),
            Self::Retry(text) => Self::Retry(text.clone()),
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
            Some(
                &SqlState::TOO_MANY_CONNECTIONS
                | &SqlState::OUT_OF_MEMORY
                | &SqlState::ADMIN_SHUTDOWN
                | &SqlState::CRASH_SHUTDOWN
                | &SqlState::CANNOT_CONNECT_NOW
                | &SqlState::READ_ONLY_SQL_TRANSACTION
                | &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
            ) => Self::Unavailable(text),
            // No answer of the server's at all: the connection is gone.
            None if error.is_closed() || is_io(&error) => Self::Unavailable(text),
            _ => Self::Other(text),
        }
    }
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    use std::error::Error as _;
    error.source().is_some_and(|source| source.is::<std::io::Error>())
}
