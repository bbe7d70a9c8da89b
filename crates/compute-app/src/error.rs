//! The errors of the compute service, and the text that the user sees.
//!
//! Work inside a transaction returns this type. It carries a [`Refusal`] unchanged, because only
//! the code that refuses knows the message.

use kilonova_compute_scheduler::Unplaced;
use kilonova_ids::{HostName, OperationId, ServerId};
use kilonova_store as store;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{IntoRefusal, Refusal};

use crate::flows::operation::Unreadable;
use crate::numa::Misfits;

/// An error of the compute service.
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
    /// A row of the journal is not a valid operation: a newer build wrote the database, or the row
    /// was changed manually.
    #[error("operation {operation} of server {server} cannot be read: {why}")]
    Unreadable {
        /// The operation.
        operation: OperationId,
        /// The server.
        server: ServerId,
        /// The reason.
        why: Box<Unreadable>,
    },
    /// The image service failed.
    #[error(transparent)]
    Image(#[from] kilonova_image::Error),
    /// The network service refused.
    #[error(transparent)]
    Network(#[from] kilonova_network::Error),
    /// Another transaction has claimed the planned resources; plan again.
    #[error("another transaction has claimed the planned resources")]
    Outdated,
    /// The NUMA topology of a guest does not fit on the candidate's host. The text is a clause that
    /// describes the host.
    #[error("the NUMA topology does not fit on the host: {0}")]
    Misfit(String),
    /// The devices of a candidate are no longer where the plan expected them.
    #[error("the devices of the planned host have moved")]
    Moved,
    /// The planned hosts have the resources, but the NUMA topology of a server fits on none of
    /// them; plan again without these hosts. The number is how many of the request's servers were
    /// placed before this one.
    #[error("the NUMA topology of a server does not fit on any planned host")]
    Unfit(Misfits, usize),
    /// No host fits a server. The reason is determined before the transaction runs again
    /// ([`Compute::write`](crate::Compute::write)).
    #[error("no valid host was found for a server")]
    Unexplained(Box<Unplaced>),
    /// An agent uses the epoch of an older session.
    #[error("another process has registered for this host")]
    Fenced,
    /// The host belongs to an external Nova that has not created the host's resource provider yet.
    #[error(
        "no resource provider is named {0} yet: [nova] is set, and that Nova creates the providers \
         of its hosts. Start nova-compute there, or give the agent the host's name that Nova knows \
         (openstack hypervisor list)"
    )]
    NoRoot(HostName),
    /// A divided host with allocations at its NUMA cells cannot be given to an external Nova.
    #[error(
        "host {host} offers its CPUs and memory by NUMA cell, and has allocations there (consumers: {consumers}). [nova] is set, \
         and that Nova knows no cells. Remove [nova], move the servers to other hosts (kilonova host drain), set [compute] \
         numa_in_placement = false on the host and restart its agent; then set [nova] again"
    )]
    Divided {
        /// The host.
        host: HostName,
        /// The number of consumers with allocations at its cells.
        consumers: usize,
    },
    /// The request is refused.
    #[error(transparent)]
    Refused(Box<Refusal>),
}

impl Error {
    /// True if a claim failed for lack of resources, so that the caller should try the next
    /// candidate.
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
            Self::Moved => true,
            _ => false,
        }
    }
}

impl From<kilonova_compute_db::Error> for Error {
    fn from(error: kilonova_compute_db::Error) -> Self {
        let kilonova_compute_db::Error::Store(error) = error;
        Self::Store(error)
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl IntoRefusal for Error {
    fn into_refusal(self) -> Refusal {
        match self {
            Self::Refused(refusal) => *refusal,
            Self::Placement(error) => error.into(),
            Self::Accelerator(error) => error.into(),
            Self::Image(error) => error.into(),
            Self::Network(error) => error.into(),
            Self::Flow(kilonova_flow::Error::Busy(server)) => Refusal::conflict(format!(
                "Cannot act on instance {server} while another operation on it is in progress"
            )),
            Self::Flow(kilonova_flow::Error::Store(error)) => Self::Store(error).into(),
            Self::Flow(
                error @ (kilonova_flow::Error::Moved(_) | kilonova_flow::Error::Outcome(..)),
            ) => Refusal::internal(error),
            Self::Unreadable { .. } => Refusal::internal(self),
            Self::Outdated
            | Self::Moved
            | Self::Fenced
            | Self::NoRoot(_)
            | Self::Divided { .. }
            | Self::Unexplained(_)
            | Self::Misfit(_)
            | Self::Unfit(..) => Refusal::new(Kind::Unavailable, self.to_string()),
            Self::Store(error) => kilonova_compute_db::Error::Store(error).into(),
        }
    }
}
