//! Errors of the network service, with Neutron's types and messages.
//!
//! Other modules create refusals with the functions in this file. It also converts database errors
//! into refusals.

use std::fmt::Display;

use kilonova_store::Severity;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{IntoRefusal, Refusal};

/// A failure of the network service.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] kilonova_store::Error),
    /// The request is refused.
    #[error(transparent)]
    Refused(Box<Refusal>),
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
            Self::Store(error) => match error.severity() {
                Severity::DiskFull => Refusal::no_space(error),
                Severity::Temporary => Refusal::unavailable(error),
                Severity::Permanent => Refusal::internal(error),
            },
        }
    }
}

/// 404 for a resource of this kind.
pub(crate) fn not_found(kind: &'static str, id: impl Display) -> Refusal {
    let (code, text) = match kind {
        "network" => ("NetworkNotFound", format!("Network {id} could not be found.")),
        "subnet" => ("SubnetNotFound", format!("Subnet {id} could not be found.")),
        "port" => ("PortNotFound", format!("Port {id} could not be found.")),
        "security_group" => {
            ("SecurityGroupNotFound", format!("Security group {id} does not exist"))
        }
        "security_group_rule" => {
            ("SecurityGroupRuleNotFound", format!("Security group rule {id} does not exist"))
        }
        "router" => ("RouterNotFound", format!("Router {id} could not be found")),
        "floatingip" => ("FloatingIPNotFound", format!("Floating IP {id} could not be found")),
        _ => ("HTTPNotFound", "The resource could not be found.".to_owned()),
    };
    Refusal::not_found(text).with_code(code)
}

/// 400: the body is malformed.
pub(crate) fn malformed(text: impl Into<String>) -> Refusal {
    Refusal::bad_request(text)
}

/// 400: one value is invalid.
pub(crate) fn invalid_value(attribute: &str, reason: impl Display) -> Refusal {
    Refusal::bad_request(format!("Invalid input for {attribute}. Reason: {reason}."))
}

/// 400: values contradict each other.
pub(crate) fn invalid(reason: impl Display) -> Refusal {
    Refusal::bad_request(format!("Invalid input for operation: {reason}."))
        .with_code("InvalidInput")
}

/// A refusal with a Neutron error type.
pub(crate) fn refused(kind: Kind, code: &'static str, text: impl Into<String>) -> Refusal {
    Refusal::new(kind, text).with_code(code)
}

/// 400 in the form of Neutron's `BadRequest`.
pub(crate) fn bad(resource: &str, why: impl Display) -> Refusal {
    Refusal::bad_request(format!("Bad {resource} request: {why}.")).with_code("BadRequest")
}
