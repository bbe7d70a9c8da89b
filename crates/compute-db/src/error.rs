//! The errors of the tables, and the refusal that a user sees.

use kilonova_store::Severity;
use kilonova_wire::{IntoRefusal, Refusal};

/// An error of the tables.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database failed, or a row has content that no build writes.
    #[error(transparent)]
    Store(#[from] kilonova_store::Error),
}

impl IntoRefusal for Error {
    fn into_refusal(self) -> Refusal {
        let Self::Store(error) = self;
        match error.severity() {
            Severity::DiskFull => Refusal::no_space(error),
            Severity::Temporary => Refusal::unavailable(error),
            Severity::Permanent => Refusal::internal(error),
        }
    }
}
