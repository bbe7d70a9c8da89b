//! What can go wrong in this service, and how the API says it. The sentences are Cyborg's where
//! clients read them.

use http::StatusCode;
use kilonova_ids::{ArqId, ProviderId, ServerId};
use kilonova_store::Trouble;
use kilonova_wire::Fault;

/// A refusal or a failure of the accelerator service.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] kilonova_store::Error),
    /// A node reported devices that contradict each other or another host's.
    #[error("the devices of host {host} cannot be taken in: {reason}")]
    Report {
        /// The host.
        host: String,
        /// What is wrong.
        reason: String,
    },
    /// No deployable belongs to the provider.
    #[error("Deployable not found with resource provider uuid={0}")]
    NoDeployable(ProviderId),
    /// The provider's device is on another host than the one named.
    #[error("Resource provider {provider} is a device of host {actual}, not of {named}")]
    OtherHost {
        /// The provider.
        provider: ProviderId,
        /// Where it is.
        actual: String,
        /// Where the caller thinks it is.
        named: String,
    },
    /// Every handle of the provider is taken.
    #[error("AttachHandle not found: resource provider {0} has no free accelerator")]
    NoHandle(ProviderId),
    /// A thing that the caller named is not there, or not his to see.
    #[error("{kind} not found with {key}={value}")]
    NotFound {
        /// `Device`, `ExtArq`, …
        kind: &'static str,
        /// `uuid` or `name`.
        key: &'static str,
        /// What the caller wrote.
        value: String,
    },
    /// An attribute that the host says, so that its next report would bring it back.
    #[error(
        "Attribute {uuid} ({name}) is what the host reports. Only attributes that were added by \
         hand can be deleted."
    )]
    Reported {
        /// The attribute.
        uuid: uuid::Uuid,
        /// Its key.
        name: String,
    },
    /// A deployable that takes no bitstream.
    #[error(
        "FPGA programming failed: the driver {driver} of deployable {uuid} takes no bitstreams."
    )]
    NotProgrammable {
        /// The deployable.
        uuid: kilonova_ids::DeployableId,
        /// Its driver.
        driver: String,
    },
    /// A device that cannot be programmed, as somebody has a part of it or it is being programmed.
    #[error(
        "FPGA programming failed: device {device} of host {host} is in use. Delete the servers that \
         hold a part of it first."
    )]
    DeviceInUse {
        /// Its address.
        device: String,
        /// Its host.
        host: String,
    },
    /// A bitstream that cannot be had; the text says why.
    #[error("FPGA programming failed: {0}")]
    NoBitstream(String),
    /// The placement ledger failed.
    #[error(transparent)]
    Placement(kilonova_placement::Error),
    /// A profile of that name exists.
    #[error("A device_profile with name {0} already exists.")]
    NameTaken(String),
    /// A profile of that uuid exists.
    #[error("DeviceProfile with uuid {0} already exists.")]
    UuidTaken(String),
    /// A profile has accelerator requests.
    #[error(
        "Device profile {0} is in use by accelerator requests. Delete them, or the servers that \
         hold them, first."
    )]
    ProfileInUse(String),
    /// A bind for an instance that has accelerators already.
    #[error(
        "Couldn't apply patch. Reason: Instance {0} already has accelerator requests. Cannot bind \
         additional ARQs."
    )]
    AlreadyBound(ServerId),
    /// Requests of an instance of which it is not known yet how their binding ends.
    #[error("null")]
    Unresolved(ServerId),
    /// A request that is not in a state from which it can be bound.
    #[error("Bad state: {state} for ARQ: {arq}. Expected state(s): ['Initial', 'Unbound']")]
    BadState {
        /// The request.
        arq: ArqId,
        /// Its state.
        state: String,
    },
    /// A bound request touched without a service token.
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
    /// A request that this cloud's own compute service made together with its server.
    #[error(
        "ARQ {arq} belongs to server {server} of this cloud and goes with it. Use the Compute API \
         to manage instance accelerators."
    )]
    Internal {
        /// The request.
        arq: ArqId,
        /// Its server.
        server: ServerId,
    },
    /// A project with as many unbound requests as it may have.
    #[error(
        "Project {project} has {unbound} unbound accelerator requests and may have {limit}; \
         {wanted} more are too many. Delete those that nothing will bind."
    )]
    TooManyUnbound {
        /// The project.
        project: String,
        /// How many it has.
        unbound: i64,
        /// How many more it asks for.
        wanted: i64,
        /// How many it may have.
        limit: i64,
    },
    /// The caller's input is wrong; the text says how.
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

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Store(cause) => {
                return match cause.trouble() {
                    Trouble::Full => Self::no_space(cause),
                    Trouble::Passing => Self::unavailable(cause),
                    Trouble::Lasting => Self::internal(cause),
                };
            }
            Error::Placement(cause) => return Self::internal(cause),
            Error::NoDeployable(_) | Error::NoHandle(_) | Error::NotFound { .. } => {
                StatusCode::NOT_FOUND
            }
            Error::NameTaken(_)
            | Error::UuidTaken(_)
            | Error::ProfileInUse(_)
            | Error::BadState { .. }
            | Error::Reported { .. }
            | Error::NotProgrammable { .. }
            | Error::DeviceInUse { .. }
            | Error::Internal { .. } => StatusCode::CONFLICT,
            Error::Unresolved(_) => StatusCode::LOCKED,
            Error::Bound { .. } | Error::TooManyUnbound { .. } => StatusCode::FORBIDDEN,
            Error::Report { .. }
            | Error::OtherHost { .. }
            | Error::AlreadyBound(_)
            | Error::NoBitstream(_)
            | Error::Invalid(_) => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.to_string())
    }
}
