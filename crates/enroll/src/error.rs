//! Errors of joining.

use http::StatusCode;
use kilonova_store::Trouble;
use kilonova_wire::Fault;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] kilonova_store::Error),
    /// The request is refused; the text is for the caller.
    #[error("{1}")]
    Refused(StatusCode, String),
    /// A certificate is invalid or could not be created.
    #[error(transparent)]
    Pki(#[from] kilonova_pki::Error),
    /// The authority in the state directory differs from the database's.
    #[error("{0}")]
    Authority(String),
}

impl Error {
    pub(crate) fn forbidden(why: impl Into<String>) -> Self {
        Self::Refused(StatusCode::FORBIDDEN, why.into())
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(status, why) => Self::new(status, why),
            Error::Pki(error) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()),
            Error::Store(error) => match error.trouble() {
                Trouble::Full => Self::no_space(error),
                Trouble::Passing => Self::unavailable(error),
                Trouble::Lasting => Self::internal(error),
            },
            Error::Authority(_) => Self::internal(error),
        }
    }
}
