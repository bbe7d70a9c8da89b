//! What can go wrong in this service, and how each case is told to the caller.
//!
//! Every way a login can fail is the same [`Error::Unauthorized`]: whether the user, the password
//! or the project was wrong must not be told apart from outside. The reason goes to the log only.

use http::StatusCode;
use kilonova_store::Trouble;
use kilonova_wire::Fault;

use axum::http;

/// The sentence of every 401.
pub const UNAUTHORIZED: &str = "The request you have made requires authentication.";

/// A failure of the identity service.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No valid credentials; the text is for the log.
    #[error("authentication failed: {0}")]
    Unauthorized(&'static str),
    /// The caller may not do this.
    #[error("You are not authorized to perform the requested action: {0}.")]
    Forbidden(&'static str),
    /// The caller may not do this, for a reason of its own.
    #[error("{0}")]
    Refused(String),
    /// A default role is not removed by accident.
    #[error(
        "Unable to {0} immutable {1} resource: `{2}`. Set resource option \"immutable\" to false first."
    )]
    Immutable(&'static str, &'static str, String),
    /// Too many logins wait for their turn.
    #[error("Too many logins wait to be checked{whose}. Try again in {seconds} s.", whose = if *own { " for you" } else { "" })]
    Busy {
        /// Those of the caller himself are the reason.
        own: bool,
        /// When to try again.
        seconds: u64,
    },
    /// There is no such thing.
    #[error("Could not find {0}: {1}.")]
    NotFound(&'static str, String),
    /// A name or a reference in a body that means nothing.
    #[error(
        "Expecting to find {0} in {1}. The server could not comply with the request since it is \
         either malformed or otherwise incorrect. The client is assumed to be in error."
    )]
    Missing(&'static str, &'static str),
    /// The token that was asked about is not valid.
    #[error("Could not recognize Fernet token")]
    NoSuchToken,
    /// The thing is there already.
    #[error(
        "Conflict occurred attempting to store {0} - it is not possible to store the name {1} twice."
    )]
    Duplicate(&'static str, String),
    /// The request cannot be understood or is not offered.
    #[error("{0}")]
    Invalid(String),
    /// The key repository cannot be used; the text is for the operator.
    #[error("{0}")]
    Keys(String),
    /// The password hash could not be computed.
    #[error("password hashing failed: {0}")]
    Hash(String),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] kilonova_store::Error),
}

impl Error {
    /// A unique key that was hit means that the name is taken.
    pub(crate) fn taken(
        kind: &'static str,
        name: &str,
    ) -> impl FnOnce(kilonova_store::Error) -> Self {
        move |error| match error {
            kilonova_store::Error::Unique(_) => Self::Duplicate(kind, name.to_owned()),
            other => Self::Store(other),
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Unauthorized(why) => Self::unauthorized(UNAUTHORIZED).with_internal(why),
            Error::Forbidden(_) | Error::Refused(_) | Error::Immutable(..) => Self::forbidden(text),
            Error::Busy { own, seconds } => {
                let status = match own {
                    true => StatusCode::TOO_MANY_REQUESTS,
                    false => StatusCode::SERVICE_UNAVAILABLE,
                };
                Self::new(status, text).with_header(http::header::RETRY_AFTER, seconds.into())
            }
            Error::NotFound(..) | Error::NoSuchToken => Self::not_found(text),
            Error::Duplicate(..) => Self::conflict(text),
            Error::Invalid(_) | Error::Missing(..) => Self::new(StatusCode::BAD_REQUEST, text),
            Error::Store(error) => match error.trouble() {
                Trouble::Full => Self::no_space(error),
                Trouble::Passing => Self::unavailable(error),
                Trouble::Lasting => Self::internal(error),
            },
            Error::Keys(_) | Error::Hash(_) => Self::internal(text),
        }
    }
}
