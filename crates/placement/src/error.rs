//! The errors of the resource ledger, and their form in the Placement API.

use kilonova_ids::{ConsumerId, ProviderId, ResourceClass};
use kilonova_store::Severity;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{IntoRefusal, Refusal};

/// An error of the ledger.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] kilonova_store::Error),
    /// The provider does not exist.
    #[error("No resource provider with uuid {0} found")]
    NoProvider(ProviderId),
    /// The provider has no inventory of this class.
    #[error("Inventory for '{class}' on resource provider '{provider}' invalid.")]
    NoInventory {
        /// The provider.
        provider: ProviderId,
        /// The class.
        class: ResourceClass,
    },
    /// The amount does not fit any more.
    #[error(
        "Unable to create allocation for '{class}' on resource provider '{provider}'. \
         The requested amount would exceed the capacity."
    )]
    Capacity {
        /// The provider.
        provider: ProviderId,
        /// The class.
        class: ResourceClass,
    },
    /// The amount violates `min_unit`, `max_unit` or `step_size`.
    #[error(
        "Unable to create allocation for '{class}' on resource provider '{provider}'. \
         The requested amount would violate inventory constraints."
    )]
    Constraint {
        /// The provider.
        provider: ProviderId,
        /// The class.
        class: ResourceClass,
    },
    /// Another provider has the id or the name.
    #[error("Conflicting resource provider uuid: {id} or name: {name} already exists.")]
    Taken {
        /// The requested id.
        id: ProviderId,
        /// The requested name.
        name: String,
    },
    /// The consumer already has allocations.
    #[error("consumer {0} already has allocations")]
    ConsumerExists(ConsumerId),
    /// A claim without amounts, or with an amount that is not positive.
    #[error("the claim of consumer {0} must have positive amounts")]
    BadClaim(ConsumerId),
    /// A complete error response of the Placement API.
    #[error("{}", .0.message)]
    Refused(Box<Refusal>),
}

impl Error {
    /// True if the claim lost a race, so that the caller should try the next candidate.
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

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl IntoRefusal for Error {
    fn into_refusal(self) -> Refusal {
        let text = self.to_string();
        match self {
            Self::Store(cause) => match cause.severity() {
                Severity::DiskFull => Refusal::no_space(cause),
                Severity::Temporary => Refusal::unavailable(cause),
                Severity::Permanent => Refusal::internal(cause),
            },
            Self::Refused(refusal) => *refusal,
            Self::NoProvider(_) => Refusal::not_found(text),
            Self::NoInventory { .. } | Self::Capacity { .. } | Self::Constraint { .. } => {
                Refusal::conflict(format!("Unable to allocate inventory: {text}"))
            }
            Self::ConsumerExists(_) => {
                Refusal::conflict(text).with_code("placement.concurrent_update")
            }
            Self::Taken { .. } => Refusal::conflict(text).with_code("placement.duplicate_name"),
            Self::BadClaim(_) => Refusal::new(Kind::BadRequest, text),
        }
    }
}
