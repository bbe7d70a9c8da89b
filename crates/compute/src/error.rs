//! What can go wrong in the compute service, and what the user is told about it.
//!
//! Work inside a transaction returns this type; a refusal is a [`Fault`] from the start, because
//! only the place that refuses knows the sentence.

use kilonova_ids::{OperationId, ServerId};
use kilonova_store::{self as store, Trouble};
use kilonova_wire::Fault;

use crate::app::scheduler::Unplaced;
use crate::flows::operation::Unreadable;

/// A failure of the compute service.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The resource ledger refused.
    #[error(transparent)]
    Placement(#[from] kilonova_placement::Error),
    /// The device ledger refused.
    #[error(transparent)]
    Accelerator(#[from] kilonova_accelerator::Error),
    /// The journal refused.
    #[error(transparent)]
    Flow(#[from] kilonova_flow::Error),
    /// A row of the journal describes no operation: the database was written by a newer build, or by
    /// hand.
    #[error("operation {operation} of server {server} cannot be read: {why}")]
    Unreadable {
        /// The row.
        operation: OperationId,
        /// The server.
        server: ServerId,
        /// Why.
        why: Box<Unreadable>,
    },
    /// The image service failed.
    #[error(transparent)]
    Image(#[from] kilonova_image::Error),
    /// The network service refused.
    #[error(transparent)]
    Network(#[from] kilonova_network::Error),
    /// What was planned is taken; plan again.
    #[error("the planned places were taken meanwhile")]
    Aged,
    /// A server has no place, and the reason is to be worked out before the transaction is run
    /// again ([`Compute::write`](crate::Compute::write)).
    #[error("a server has no place")]
    Unexplained(Box<Unplaced>),
    /// A node calls with the epoch of an older session.
    #[error("another process has registered for this host")]
    Fenced,
    /// A host of a Nova elsewhere, which has not made the host's resource provider yet.
    #[error(
        "no resource provider is named {0} yet: [nova] is set, and that Nova makes the providers of its \
         hosts. Start nova-compute there, or give the agent the host's name that Nova knows (openstack \
         hypervisor list)"
    )]
    NoRoot(String),
    /// The request is refused.
    #[error("{}: {}", .0.status, .0.message)]
    Refused(Box<Fault>),
}

impl Error {
    /// Whether a claim failed because there is no room (any more), so that the next candidate is to
    /// be tried.
    pub fn is_lack_of_room(&self) -> bool {
        match self {
            Self::Placement(error) => error.no_longer_fits(),
            Self::Accelerator(error) => {
                use kilonova_accelerator::Error as Refusal;
                matches!(
                    error,
                    Refusal::NoHandle(_)
                        | Refusal::NoDeployable(_)
                        | Refusal::DeviceInUse { .. }
                        | Refusal::NoBitstream(_)
                        | Refusal::NotProgrammable { .. }
                )
            }
            _ => false,
        }
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
            Error::Refused(fault) => *fault,
            Error::Placement(error) => error.into(),
            Error::Accelerator(error) => error.into(),
            Error::Image(error) => error.into(),
            Error::Network(error) => error.into(),
            Error::Flow(kilonova_flow::Error::Busy(server)) => Self::conflict(format!(
                "Cannot act on instance {server} while another operation on it is in progress"
            )),
            Error::Flow(kilonova_flow::Error::Store(error)) => Error::Store(error).into(),
            Error::Flow(
                error @ (kilonova_flow::Error::Moved(_) | kilonova_flow::Error::Outcome(..)),
            ) => Self::internal(error),
            error @ Error::Unreadable { .. } => Self::internal(error),
            Error::Aged | Error::Fenced | Error::NoRoot(_) | Error::Unexplained(_) => {
                Self::new(http::StatusCode::SERVICE_UNAVAILABLE, error.to_string())
            }
            Error::Store(error) => match error.trouble() {
                Trouble::Full => Self::no_space(error),
                Trouble::Passing => Self::unavailable(error),
                Trouble::Lasting => Self::internal(error),
            },
        }
    }
}
