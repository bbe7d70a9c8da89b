//! Errors of Cinder: its refusals, and the absence of an answer.

use http::StatusCode;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{IntoRefusal, Refusal};
use serde_json::Value;

/// A failed request; its message is for the operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Cinder or its Keystone did not answer, or the login was refused.
    #[error(transparent)]
    NoAnswer(#[from] kilonova_keystone::Error),
    /// Cinder refuses the request.
    #[error(transparent)]
    Refused(Box<Refused>),
    /// Cinder's answer does not have the form of its API.
    #[error("Cinder answered {request} in an unknown form: {why}")]
    Malformed {
        /// The method and the path.
        request: String,
        /// The difference.
        why: String,
    },
    /// The endpoint is not one of the Block Storage API v3, or its Cinder is too old.
    #[error("{url} is not a usable Block Storage API: {why}")]
    Unsupported {
        /// The URL of the endpoint.
        url: String,
        /// The reason.
        why: String,
    },
}

/// A refusal of Cinder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Cinder answered {request} with {status}: {message}")]
pub struct Refused {
    /// The method and the path.
    pub request: String,
    /// The status.
    pub status: StatusCode,
    /// Cinder's message.
    pub message: String,
    /// The name of Cinder's fault, such as `itemNotFound`. `None` if the answer is not Cinder's, but that of its
    /// Keystone middleware or of a proxy.
    pub fault: Option<String>,
    /// `req-…`, the id of the request in Cinder's logs.
    pub request_id: Option<String>,
}

impl Refused {
    /// Reads the body of a refusal: `{"badRequest": {"code", "message"}}`, `{"error": {"message"}}` from
    /// the check of the token, or no JSON from a proxy.
    pub(crate) fn read(
        request: String,
        status: StatusCode,
        body: &Value,
        request_id: Option<String>,
    ) -> Self {
        let named = body.as_object().into_iter().flatten().find_map(|(_, fault)| {
            fault["message"].as_str().or_else(|| fault.as_str()).map(str::to_owned)
        });
        let message =
            named.unwrap_or_else(|| status.canonical_reason().unwrap_or_default().to_owned());
        let mut faults = body.as_object().into_iter().flatten();
        let fault = faults.find(|(name, fault)| *name != "error" && fault["message"].is_string());
        let fault = fault.map(|(name, _)| name.clone());
        Self { request, status, message, fault, request_id }
    }

    /// The message in the form of python-cinderclient, which Nova shows to its users.
    pub fn words(&self) -> String {
        match &self.request_id {
            Some(id) => {
                format!("{} (HTTP {}) (Request-ID: {id})", self.message, self.status.as_u16())
            }
            None => format!("{} (HTTP {})", self.message, self.status.as_u16()),
        }
    }
}

impl Error {
    /// Cinder's refusal.
    pub fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Refused(refused) => Some(refused),
            Self::NoAnswer(_) | Self::Malformed { .. } | Self::Unsupported { .. } => None,
        }
    }

    /// The status of Cinder's refusal.
    pub fn status(&self) -> Option<StatusCode> {
        self.refused().map(|refused| refused.status)
    }

    /// True if the object does not exist, so that no rollback is needed. The 404 of a proxy whose Cinder restarts says
    /// nothing about the object.
    pub fn is_not_found(&self) -> bool {
        self.refused().is_some_and(|refused| refused.fault.as_deref() == Some("itemNotFound"))
    }

    /// True if Cinder understood the request and refuses it, so that a retry would be refused too.
    /// A rejected token is not such a refusal, and neither is the answer of a proxy.
    pub fn is_final(&self) -> bool {
        self.refused().is_some_and(|Refused { status, fault, .. }| {
            status.is_client_error()
                && fault.is_some()
                && *status != StatusCode::UNAUTHORIZED
                && *status != StatusCode::REQUEST_TIMEOUT
                && *status != StatusCode::TOO_MANY_REQUESTS
        })
    }

    /// True if Cinder may have carried out the request although it did not confirm it.
    pub fn may_have_effect(&self) -> bool {
        match self {
            Self::NoAnswer(kilonova_keystone::Error::Unreachable { connected, .. }) => *connected,
            Self::NoAnswer(kilonova_keystone::Error::Unexpected { .. })
            | Self::Malformed { .. } => true,
            Self::NoAnswer(
                kilonova_keystone::Error::Setup(_)
                | kilonova_keystone::Error::Login { .. }
                | kilonova_keystone::Error::NoEndpoint { .. },
            )
            | Self::Unsupported { .. } => false,
            Self::Refused(refused) => refused.status.is_server_error(),
        }
    }
}

impl IntoRefusal for Error {
    /// The answer for a user whose request depends on Cinder. It shows Cinder's own message if the
    /// user can act on it; a failure of Cinder is a 503 whose cause is only logged.
    fn into_refusal(self) -> Refusal {
        let refused = match self {
            Self::NoAnswer(error) => return error.into_unavailable("volume"),
            Self::Malformed { .. } | Self::Unsupported { .. } => return unavailable(self),
            Self::Refused(refused) => refused,
        };
        let kind = match refused.status {
            StatusCode::UNAUTHORIZED => {
                return Refusal::unauthorized("The request you have made requires authentication.")
                    .with_internal(refused);
            }
            StatusCode::FORBIDDEN | StatusCode::PAYLOAD_TOO_LARGE => Kind::Forbidden,
            StatusCode::NOT_FOUND => Kind::NotFound,
            StatusCode::CONFLICT => Kind::Conflict,
            status if status.is_client_error() => {
                let words = format!("Invalid input received: {}", refused.words());
                return Refusal::bad_request(words).with_internal(refused);
            }
            _ => return unavailable(refused),
        };
        Refusal::new(kind, refused.words()).with_internal(refused)
    }
}

fn unavailable(cause: impl std::fmt::Display) -> Refusal {
    Refusal::new(Kind::Unavailable, "The volume service is temporarily unavailable. Try again.")
        .with_retry_after(1)
        .with_internal(cause)
}
