//! Errors of enrollment.

use kilonova_store::Severity;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{IntoRefusal, Refusal};

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] kilonova_store::Error),
    /// The request is refused; the text is for the caller.
    #[error("{1}")]
    Refused(Kind, String),
    /// A certificate is invalid or could not be created.
    #[error(transparent)]
    Pki(#[from] kilonova_pki::Error),
    /// The key of an authority could not be sealed or opened; the text is for the operator.
    #[error(transparent)]
    Seal(kilonova_seal::Error),
    /// The cloud's authority is not usable; the text is for the operator.
    #[error("{0}")]
    Authority(String),
}

impl Error {
    pub(crate) fn forbidden(why: impl Into<String>) -> Self {
        Self::Refused(Kind::Forbidden, why.into())
    }
}

impl From<kilonova_seal::Error> for Error {
    fn from(error: kilonova_seal::Error) -> Self {
        match error {
            kilonova_seal::Error::Store(error) => Self::Store(error),
            other @ (kilonova_seal::Error::Key(_)
            | kilonova_seal::Error::Unknown { .. }
            | kilonova_seal::Error::Damaged(_)) => Self::Seal(other),
        }
    }
}

impl IntoRefusal for Error {
    fn into_refusal(self) -> Refusal {
        match self {
            Self::Refused(kind, why) => Refusal::new(kind, why),
            Self::Pki(error) => Refusal::new(Kind::Unprocessable, error.to_string()),
            Self::Store(error) => match error.severity() {
                Severity::DiskFull => Refusal::no_space(error),
                Severity::Temporary => Refusal::unavailable(error),
                Severity::Permanent => Refusal::internal(error),
            },
            Self::Authority(_) | Self::Seal(_) => Refusal::internal(self),
        }
    }
}
