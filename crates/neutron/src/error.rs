//! Errors of Neutron: its refusals, and missing or malformed answers.

use http::StatusCode;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{IntoRefusal, Refusal};
use serde_json::Value;

/// A failed request; its message is for the operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neutron or its Keystone did not answer, or the login was refused.
    #[error(transparent)]
    NoAnswer(#[from] kilonova_keystone::Error),
    /// Neutron refuses the request.
    #[error(transparent)]
    Refused(Box<Refused>),
    /// Neutron's answer does not have the form that its API promises.
    #[error("Neutron answered {request} in an unknown form: {why}")]
    Malformed {
        /// The method and the path.
        request: String,
        /// The difference.
        why: String,
    },
}

/// A refusal by Neutron.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Neutron answered {request} with {status}: {message}")]
pub struct Refused {
    /// The method and the path.
    pub request: String,
    /// The status.
    pub status: StatusCode,
    /// The type.
    pub kind: Type,
    /// Neutron's message.
    pub message: String,
}

/// The types of Neutron's errors that a compute service handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// There is no such port.
    PortNotFound,
    /// There is no such network.
    NetworkNotFound,
    /// The address belongs to no subnet of the network.
    InvalidIpForNetwork,
    /// Another port has the address.
    IpAddressInUse,
    /// Another port has the address.
    IpAddressAlreadyAllocated,
    /// No address is free.
    IpAddressGenerationFailure,
    /// Another port of the network has the MAC address.
    MacAddressInUse,
    /// The host is in no segment of the port's subnets.
    HostNotCompatibleWithFixedIps,
    /// A quota is exhausted.
    OverQuota,
    /// No mechanism driver of Neutron can bind the port to the host.
    PortBindingError,
    /// The port already has a binding to the host.
    PortBindingAlreadyExists,
    /// The port has no binding to the host.
    PortBindingNotFound,
    /// The port's binding to the host is already active.
    PortBindingAlreadyActive,
    /// Any other type.
    Other,
}

impl Type {
    const NAMED: &[(&str, Self)] = &[
        ("PortNotFound", Self::PortNotFound),
        ("NetworkNotFound", Self::NetworkNotFound),
        ("InvalidIpForNetwork", Self::InvalidIpForNetwork),
        ("IpAddressInUse", Self::IpAddressInUse),
        ("IpAddressAlreadyAllocated", Self::IpAddressAlreadyAllocated),
        ("IpAddressGenerationFailure", Self::IpAddressGenerationFailure),
        ("MacAddressInUse", Self::MacAddressInUse),
        ("HostNotCompatibleWithFixedIps", Self::HostNotCompatibleWithFixedIps),
        ("OverQuota", Self::OverQuota),
        ("PortBindingError", Self::PortBindingError),
        ("PortBindingAlreadyExists", Self::PortBindingAlreadyExists),
        ("PortBindingNotFound", Self::PortBindingNotFound),
        ("PortBindingAlreadyActive", Self::PortBindingAlreadyActive),
    ];

    fn of(name: &str) -> Self {
        let named = Self::NAMED.iter().find(|(known, _)| *known == name);
        named.map_or(Self::Other, |(_, kind)| *kind)
    }
}

impl Refused {
    /// Reads the body of a refusal: `{"NeutronError": {"type", "message", "detail"}}` from Neutron,
    /// `{"error": {"message"}}` from the token check in front of Neutron, or no JSON from a proxy.
    pub(crate) fn read(request: String, status: StatusCode, body: &Value) -> Self {
        let error = &body["NeutronError"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let message = [&error["message"], error, &body["error"]["message"]];
        Self {
            request,
            status,
            kind: Type::of(error["type"].as_str().unwrap_or_default()),
            message: message
                .into_iter()
                .find_map(text)
                .unwrap_or_else(|| status.canonical_reason().unwrap_or_default().to_owned()),
        }
    }
}

impl Error {
    /// The type of Neutron's refusal; `None` without a refusal.
    pub fn kind(&self) -> Option<Type> {
        self.refused().map(|refused| refused.kind)
    }

    /// Neutron's refusal.
    pub fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Refused(refused) => Some(refused),
            Self::NoAnswer(_) | Self::Malformed { .. } => None,
        }
    }

    /// True if the object does not exist: an undo has nothing left to do.
    pub fn is_not_found(&self) -> bool {
        self.refused().is_some_and(|refused| refused.status == StatusCode::NOT_FOUND)
    }

    /// True if Neutron may have carried out the request although it did not confirm it.
    pub fn may_have_effect(&self) -> bool {
        match self {
            Self::NoAnswer(kilonova_keystone::Error::Unreachable { connected, .. }) => *connected,
            Self::NoAnswer(kilonova_keystone::Error::Unexpected { .. })
            | Self::Malformed { .. } => true,
            Self::NoAnswer(
                kilonova_keystone::Error::Setup(_)
                | kilonova_keystone::Error::Login { .. }
                | kilonova_keystone::Error::NoEndpoint { .. },
            ) => false,
            Self::Refused(refused) => refused.status.is_server_error(),
        }
    }
}

impl IntoRefusal for Error {
    /// The answer for a user whose request depends on Neutron. Neutron's own message is shown where the user can act on
    /// it; a failure of Neutron becomes a 503, and its cause is only logged.
    fn into_refusal(self) -> Refusal {
        let refused = match self {
            Self::NoAnswer(error) => return error.into_unavailable("network"),
            Self::Malformed { .. } => return unavailable(self),
            Self::Refused(refused) => refused,
        };
        let kind = match refused.status {
            StatusCode::UNAUTHORIZED => {
                // Like upstream, ask the client for a new token. A refusal of our own login is
                // `NoAnswer`.
                return Refusal::unauthorized("The request you have made requires authentication.")
                    .with_internal(refused);
            }
            StatusCode::FORBIDDEN => Kind::Forbidden,
            StatusCode::NOT_FOUND => Kind::NotFound,
            StatusCode::CONFLICT => Kind::Conflict,
            status if status.is_client_error() => Kind::BadRequest,
            _ => return unavailable(refused),
        };
        Refusal::new(kind, refused.message.clone()).with_internal(refused)
    }
}

fn unavailable(cause: impl std::fmt::Display) -> Refusal {
    Refusal::new(Kind::Unavailable, "The network service is temporarily unavailable. Try again.")
        .with_retry_after(1)
        .with_internal(cause)
}
