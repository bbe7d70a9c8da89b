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

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ffi;
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
            if matches!(
                code.code,
                rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked
            ) {
                return Self::Retry(error.to_string());
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
            _ => Self::Other(text),
        }
    }
}
