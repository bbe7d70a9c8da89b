//! What can go wrong with the ledger of resources, and how the Placement API words it.

use axum::http::StatusCode;
use kilonova_ids::{ConsumerId, ProviderId};
use kilonova_store::Trouble;
use kilonova_wire::Fault;

/// A refusal of the ledger.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] kilonova_store::Error),
    /// No such provider.
    #[error("No resource provider with uuid {0} found")]
    NoProvider(ProviderId),
    /// The provider has none of this class.
    #[error("Inventory for '{class}' on resource provider '{provider}' invalid.")]
    NoInventory {
        /// Which provider.
        provider: ProviderId,
        /// Which class.
        class: String,
    },
    /// It no longer fits.
    #[error(
        "Unable to create allocation for '{class}' on resource provider '{provider}'. \
         The requested amount would exceed the capacity."
    )]
    Capacity {
        /// Which provider.
        provider: ProviderId,
        /// Which class.
        class: String,
    },
    /// It breaks `min_unit`, `max_unit` or `step_size`.
    #[error(
        "Unable to create allocation for '{class}' on resource provider '{provider}'. \
         The requested amount would violate inventory constraints."
    )]
    Constraint {
        /// Which provider.
        provider: ProviderId,
        /// Which class.
        class: String,
    },
    /// Another provider has the id or the name.
    #[error("Conflicting resource provider uuid: {id} or name: {name} already exists.")]
    Taken {
        /// The id that was to be used.
        id: ProviderId,
        /// The name that was to be used.
        name: String,
    },
    /// The consumer holds something already.
    #[error("consumer {0} already has allocations")]
    ConsumerExists(ConsumerId),
    /// A claim of nothing, or of an amount that is not positive.
    #[error("a claim of consumer {0} has to hold positive amounts")]
    BadClaim(ConsumerId),
    /// What the Placement API answers, worded already.
    #[error("{}", .0.message)]
    Refused(Box<Fault>),
}

impl Error {
    /// Whether the claim would have been fine a moment ago: try the next candidate.
    pub fn no_longer_fits(&self) -> bool {
        matches!(
            self,
            Self::Capacity { .. }
                | Self::Constraint { .. }
                | Self::NoInventory { .. }
                | Self::NoProvider(_)
        )
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Self::Refused(Box::new(fault))
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(cause) => match cause.trouble() {
                Trouble::Full => Self::no_space(cause),
                Trouble::Passing => Self::unavailable(cause),
                Trouble::Lasting => Self::internal(cause),
            },
            Error::Refused(fault) => *fault,
            Error::NoProvider(_) => Self::not_found(error.to_string()),
            Error::NoInventory { .. } | Error::Capacity { .. } | Error::Constraint { .. } => {
                Self::conflict(format!("Unable to allocate inventory: {error}"))
            }
            Error::ConsumerExists(_) => {
                Self::conflict(error.to_string()).with_code("placement.concurrent_update")
            }
            Error::Taken { .. } => {
                Self::conflict(error.to_string()).with_code("placement.duplicate_name")
            }
            Error::BadClaim(_) => Self::new(StatusCode::BAD_REQUEST, error.to_string()),
        }
    }
}
