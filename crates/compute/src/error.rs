//! What can go wrong in the compute service, and what the user is told about it.
//!
//! Work inside a transaction returns this type; a refusal is a [`Fault`] from the start, because
//! only the place that refuses knows the sentence.

use kilonova_store as store;
use kilonova_wire::Fault;

/// A failure of the compute service.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The request is refused.
    #[error("{}: {}", .0.status, .0.message)]
    Refused(Box<Fault>),
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Self::Refused(Box::new(fault))
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(error) => Self::internal(error),
            Error::Refused(fault) => *fault,
        }
    }
}
