//! Errors in communication with a Keystone and the services of its catalog.

use kilonova_wire::Refusal;
use kilonova_wire::refusal::Kind;

/// An error; its message is for the operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings are invalid.
    #[error("{0}")]
    Setup(String),
    /// There was no answer.
    #[error("no answer from {url}: {cause}")]
    Unreachable {
        /// The URL that was requested.
        url: String,
        /// False if the other side cannot have seen the request.
        connected: bool,
        /// The connection error.
        cause: String,
    },
    /// Keystone refused the login.
    #[error(
        "{url} refuses the login of {user}: {why}; check the credentials, the project and the domains"
    )]
    Login {
        /// The URL that was requested.
        url: String,
        /// The user or the credential.
        user: String,
        /// Keystone's message.
        why: String,
    },
    /// The catalog has no such endpoint.
    #[error(
        "the catalog of {url} has no endpoint of type {service_type} with interface {interfaces}{region}; \
         register it, or set endpoint_override"
    )]
    NoEndpoint {
        /// Keystone's URL.
        url: String,
        /// The type of the service.
        service_type: String,
        /// The interfaces that were tried.
        interfaces: String,
        /// ` in region NAME`, or nothing.
        region: String,
    },
    /// The answer is unexpected.
    #[error("{url} answered {what}")]
    Unexpected {
        /// The URL that was requested.
        url: String,
        /// The problem with the answer.
        what: String,
    },
}

impl Error {
    /// The answer for a caller whose request depends on `service`: 503 with `Retry-After`. The cause goes
    /// to the log.
    pub fn into_unavailable(self, service: &str) -> Refusal {
        Refusal::new(
            Kind::Unavailable,
            format!("The {service} service is temporarily unavailable. Try again."),
        )
        .with_retry_after(1)
        .with_internal(self)
    }
}
