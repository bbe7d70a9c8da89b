//! Errors of this service and their faults.
//!
//! All failed logins are the same [`Error::Unauthorized`]: a client must not learn whether the user,
//! the password or the project was wrong. The reason is only logged.

use kilonova_store::Severity;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{IntoRefusal, Refusal};

/// The message of every 401.
pub const UNAUTHORIZED: &str = "The request you have made requires authentication.";

/// A failure of the identity service.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No valid credentials; the reason is for the log.
    #[error("authentication failed: {0}")]
    Unauthorized(&'static str),
    /// Policy refuses the caller.
    #[error("You are not authorized to perform the requested action: {0}.")]
    Forbidden(&'static str),
    /// The request is refused for another reason.
    #[error("{0}")]
    Refused(String),
    /// An immutable project or role must not be changed or deleted.
    #[error(
        "Unable to {0} immutable {1} resource: `{2}`. Set resource option \"immutable\" to false first."
    )]
    Immutable(&'static str, &'static str, String),
    /// The queue of logins is full.
    #[error("Too many logins are waiting to be checked{whose}. Try again in {seconds} s.", whose = if *own { " for you" } else { "" })]
    Busy {
        /// True if the caller's own logins fill the queue.
        own: bool,
        /// Seconds until the caller should try again.
        seconds: u64,
    },
    /// The resource does not exist.
    #[error("Could not find {0}: {1}.")]
    NotFound(&'static str, String),
    /// No EC2 credential has the access key.
    #[error("EC2 access key not found.")]
    NoAccessKey,
    /// The marker of a list does not exist.
    #[error("Marker {0} could not be found.")]
    NoMarker(String),
    /// The first role does not imply the second.
    #[error("{0} does not imply {1}.")]
    NotImplied(String, String),
    /// A required attribute is missing, or a reference is dangling.
    #[error(
        "Expecting to find {0} in {1}. The server could not comply with the request since it is \
         either malformed or otherwise incorrect. The client is assumed to be in error."
    )]
    Missing(&'static str, &'static str),
    /// The subject token is not valid.
    #[error("Could not recognize Fernet token")]
    NoSuchToken,
    /// The name is taken.
    #[error(
        "Conflict occurred attempting to store {0} - it is not possible to store the name {1} twice."
    )]
    Duplicate(&'static str, String),
    /// The id is taken.
    #[error("Conflict occurred attempting to store {0} - Duplicate entry found with ID {1}.")]
    DuplicateId(&'static str, String),
    /// The limit does not exist.
    #[error("Could not find {0} for {1}.")]
    NoLimit(&'static str, String),
    /// A limit of this kind already exists for the same resource.
    #[error("Conflict occurred attempting to store {0} - Duplicate entry.")]
    DuplicateLimit(&'static str),
    /// The request is invalid or not supported.
    #[error("{0}")]
    Invalid(String),
    /// The token keys are missing or unusable; the text is for the operator.
    #[error("{0}")]
    Keys(String),
    /// The token keys cannot be read now, so an unknown token cannot be validated.
    #[error("The token keys cannot be read now. Try again shortly.")]
    KeysUnread,
    /// The password hash could not be computed.
    #[error("password hashing failed: {0}")]
    Hash(String),
    /// A token key could not be sealed or opened; the text is for the operator.
    #[error(transparent)]
    Seal(kilonova_seal::Error),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] kilonova_store::Error),
}

impl Error {
    /// [`Error::NotFound`], for `ok_or_else`.
    pub(crate) fn not_found(kind: &'static str, id: &str) -> impl FnOnce() -> Self {
        move || Self::NotFound(kind, id.to_owned())
    }

    /// Returns [`Error::NotFound`] unless `found` is true.
    pub(crate) fn unless_found(found: bool, kind: &'static str, id: &str) -> Result<(), Self> {
        if found { Ok(()) } else { Err(Self::NotFound(kind, id.to_owned())) }
    }

    /// Maps the error of a marker's lookup.
    pub(crate) fn no_marker(self) -> Self {
        match self {
            Self::NotFound(_, id) => Self::NoMarker(id),
            other => other,
        }
    }

    /// Maps a violated unique key to [`Error::Duplicate`].
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

impl From<kilonova_seal::Error> for Error {
    fn from(error: kilonova_seal::Error) -> Self {
        match error {
            kilonova_seal::Error::Store(error) => Self::Store(error),
            other @ (kilonova_seal::Error::Key(_)
            | kilonova_seal::Error::Unknown { .. }
            | kilonova_seal::Error::Damaged(_)) => Self::Seal(other),
        }
    }
}

impl IntoRefusal for Error {
    fn into_refusal(self) -> Refusal {
        let text = self.to_string();
        match self {
            Self::Unauthorized(why) => Refusal::unauthorized(UNAUTHORIZED).with_internal(why),
            Self::Forbidden(_) | Self::Refused(_) | Self::Immutable(..) => Refusal::forbidden(text),
            Self::Busy { own, seconds } => {
                let kind = match own {
                    true => Kind::TooManyRequests,
                    false => Kind::Unavailable,
                };
                Refusal::new(kind, text).with_retry_after(seconds)
            }
            Self::KeysUnread => Refusal::new(Kind::Unavailable, text).with_retry_after(1),
            Self::NotFound(..)
            | Self::NotImplied(..)
            | Self::NoSuchToken
            | Self::NoAccessKey
            | Self::NoLimit(..)
            | Self::NoMarker(_) => Refusal::not_found(text),
            Self::Duplicate(..) | Self::DuplicateId(..) | Self::DuplicateLimit(_) => {
                Refusal::conflict(text)
            }
            Self::Invalid(_) | Self::Missing(..) => Refusal::new(Kind::BadRequest, text),
            Self::Store(error) => match error.severity() {
                Severity::DiskFull => Refusal::no_space(error),
                Severity::Temporary => Refusal::unavailable(error),
                Severity::Permanent => Refusal::internal(error),
            },
            Self::Keys(_) | Self::Hash(_) | Self::Seal(_) => Refusal::internal(text),
        }
    }
}
