//! The errors of this service and their form in the API. The messages are Cyborg's where clients
//! read them.

use kilonova_ids::{ArqId, HostName, ProviderId, ServerId};
use kilonova_store::Severity;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{IntoRefusal, Refusal};

use crate::states::ArqState;

/// An error of the accelerator service.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] kilonova_store::Error),
    /// A host reported devices that contradict each other or those of another host.
    #[error("the device report of host {host} is refused: {reason}")]
    Report {
        /// The host.
        host: HostName,
        /// The contradiction.
        reason: String,
    },
    /// No deployable belongs to the provider.
    #[error("Deployable not found with resource provider uuid={0}")]
    NoDeployable(ProviderId),
    /// The provider's device is not on the named host.
    #[error("Resource provider {provider} is a device of host {actual}, not of {named}")]
    OtherHost {
        /// The provider.
        provider: ProviderId,
        /// The actual host.
        actual: HostName,
        /// The named host.
        named: HostName,
    },
    /// No handle of the provider is free.
    #[error("AttachHandle not found: resource provider {0} has no free accelerator")]
    NoHandle(ProviderId),
    /// The named object does not exist, or the caller may not see it.
    #[error("{kind} not found with {key}={value}")]
    NotFound {
        /// `Device`, `ExtArq`, …
        kind: &'static str,
        /// The key of the lookup, such as `uuid` or `name`.
        key: &'static str,
        /// The caller's text.
        value: String,
    },
    /// The attribute comes from the host, so its next report would restore it.
    #[error(
        "Attribute {uuid} ({name}) was reported by the host. Only attributes that were added \
         through the API can be deleted."
    )]
    Reported {
        /// The attribute.
        uuid: uuid::Uuid,
        /// Its key.
        name: String,
    },
    /// The deployable does not support bitstreams.
    #[error(
        "FPGA programming failed: the driver {driver} of deployable {uuid} takes no bitstreams."
    )]
    NotProgrammable {
        /// The deployable.
        uuid: kilonova_ids::DeployableId,
        /// Its driver.
        driver: String,
    },
    /// The device cannot be programmed: a consumer uses a part of it, or another order programs it.
    #[error(
        "FPGA programming failed: device {device} of host {host} is in use. Delete the servers that \
         hold a part of it first."
    )]
    DeviceInUse {
        /// Its address.
        device: String,
        /// Its host.
        host: HostName,
    },
    /// The bitstream is unavailable; the text gives the reason.
    #[error("FPGA programming failed: {0}")]
    NoBitstream(String),
    /// The placement ledger failed.
    #[error(transparent)]
    Placement(kilonova_placement::Error),
    /// A profile with that name exists.
    #[error("A device_profile with name {0} already exists.")]
    NameTaken(String),
    /// A profile with that UUID exists.
    #[error("DeviceProfile with uuid {0} already exists.")]
    UuidTaken(String),
    /// Accelerator requests use the profile.
    #[error(
        "Device profile {0} is in use by accelerator requests. Delete them, or the servers that \
         hold them, first."
    )]
    ProfileInUse(String),
    /// The instance already has accelerators.
    #[error(
        "Couldn't apply patch. Reason: Instance {0} already has accelerator requests. Cannot bind \
         additional ARQs."
    )]
    AlreadyBound(ServerId),
    /// The instance has requests whose binding is in progress. The text is that of upstream's body.
    #[error("null")]
    Unresolved(ServerId),
    /// The request is not in a state that can be bound.
    #[error("Bad state: {state} for ARQ: {arq}. Expected state(s): ['Initial', 'Unbound']")]
    BadState {
        /// The request.
        arq: ArqId,
        /// Its state.
        state: ArqState,
    },
    /// The request is bound, and the caller has no service token.
    #[error(
        "ARQ {arq} is bound to instance {server}. Use the Compute API to manage instance \
         accelerators."
    )]
    Bound {
        /// The request.
        arq: ArqId,
        /// Its server.
        server: ServerId,
    },
    /// This cloud's own compute service created the request together with its server.
    #[error(
        "ARQ {arq} belongs to server {server} of this cloud and is deleted with it. Use the \
         Compute API to manage instance accelerators."
    )]
    Internal {
        /// The request.
        arq: ArqId,
        /// Its server.
        server: ServerId,
    },
    /// The project has reached its limit of unbound requests.
    #[error(
        "Project {project} has {unbound} unbound accelerator requests; {wanted} more would exceed \
         its limit of {limit}. Delete those that will not be bound."
    )]
    TooManyUnbound {
        /// The project.
        project: String,
        /// Its number of unbound requests.
        unbound: i64,
        /// The number that it requested.
        wanted: i64,
        /// The limit.
        limit: i64,
    },
    /// The caller's input is invalid; the text gives the reason.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    pub(crate) fn not_found(kind: &'static str, key: &'static str, value: impl ToString) -> Self {
        Self::NotFound { kind, key, value: value.to_string() }
    }
}

impl From<kilonova_placement::Error> for Error {
    fn from(error: kilonova_placement::Error) -> Self {
        match error {
            kilonova_placement::Error::Store(cause) => Self::Store(cause),
            other => Self::Placement(other),
        }
    }
}

impl IntoRefusal for Error {
    fn into_refusal(self) -> Refusal {
        let kind = match &self {
            Self::Store(cause) => {
                return match cause.severity() {
                    Severity::DiskFull => Refusal::no_space(cause),
                    Severity::Temporary => Refusal::unavailable(cause),
                    Severity::Permanent => Refusal::internal(cause),
                };
            }
            Self::Placement(cause) => return Refusal::internal(cause),
            Self::NoDeployable(_) | Self::NoHandle(_) | Self::NotFound { .. } => Kind::NotFound,
            Self::NameTaken(_)
            | Self::UuidTaken(_)
            | Self::ProfileInUse(_)
            | Self::BadState { .. }
            | Self::Reported { .. }
            | Self::NotProgrammable { .. }
            | Self::DeviceInUse { .. }
            | Self::Internal { .. } => Kind::Conflict,
            Self::Unresolved(_) => Kind::Locked,
            Self::Bound { .. } | Self::TooManyUnbound { .. } => Kind::Forbidden,
            Self::Report { .. }
            | Self::OtherHost { .. }
            | Self::AlreadyBound(_)
            | Self::NoBitstream(_)
            | Self::Invalid(_) => Kind::BadRequest,
        };
        Refusal::new(kind, self.to_string())
    }
}
