//! Errors of the network service, with Neutron's types and messages.
//!
//! A refusal is a [`Fault`] from the start; only database errors are not.

use std::fmt::Display;

use axum::http::StatusCode;
use kilonova_store::Trouble;
use kilonova_wire::Fault;

/// A failure of the network service.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database failed.
    #[error(transparent)]
    Store(#[from] kilonova_store::Error),
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
            Error::Refused(fault) => *fault,
            Error::Store(error) => match error.trouble() {
                Trouble::Full => Self::no_space(error),
                Trouble::Passing => Self::unavailable(error),
                Trouble::Lasting => Self::internal(error),
            },
        }
    }
}

/// 404 for a resource of this kind.
pub(crate) fn not_found(kind: &'static str, id: impl Display) -> Fault {
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
        _ => ("HTTPNotFound", "The resource could not be found.".to_owned()),
    };
    Fault::not_found(text).with_code(code)
}

/// 400: the body is malformed.
pub(crate) fn malformed(text: impl Into<String>) -> Fault {
    Fault::bad_request(text)
}

/// 400: one value is invalid.
pub(crate) fn invalid_value(attribute: &str, reason: impl Display) -> Fault {
    Fault::bad_request(format!("Invalid input for {attribute}. Reason: {reason}."))
}

/// 400: values contradict each other.
pub(crate) fn invalid(reason: impl Display) -> Fault {
    Fault::bad_request(format!("Invalid input for operation: {reason}.")).with_code("InvalidInput")
}

/// A refusal with a Neutron error type.
pub(crate) fn refused(status: u16, code: &'static str, text: impl Into<String>) -> Fault {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    Fault::new(status, text).with_code(code)
}
