//! A refusal: the reason why a service rejects a request. In `api/` and the layers below it, every
//! error that a caller sees is a refusal.
//!
//! A refusal has a kind, and must never contain a status or a header. [`Fault`](crate::Fault) is
//! its HTTP form; code that adds a header or reports an unknown path uses it directly.

/// The kind of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The request is malformed, or a value in it is invalid.
    BadRequest,
    /// The caller has no valid token.
    Unauthorized,
    /// The policy or a quota forbids the request.
    Forbidden,
    /// The object does not exist, or the caller may not see it.
    NotFound,
    /// The resource exists but does not support this method.
    MethodNotAllowed,
    /// The service has no representation that the caller accepts.
    NotAcceptable,
    /// The caller sent too slowly.
    Timeout,
    /// The state of the object does not allow the request, or a concurrent request was faster.
    Conflict,
    /// The object existed, but no longer does.
    Gone,
    /// A condition in the request's headers does not hold.
    PreconditionFailed,
    /// The request is larger than a limit.
    TooLarge,
    /// The service does not support this media type.
    UnsupportedMediaType,
    /// The request is well-formed but cannot be processed.
    Unprocessable,
    /// The object is locked.
    Locked,
    /// The caller sends too many requests.
    TooManyRequests,
    /// A defect, or a permanent problem of the environment.
    Internal,
    /// The service does not provide this function.
    NotImplemented,
    /// Another service answered with an error.
    BadGateway,
    /// A dependency is unavailable, or the service is overloaded; a retry may succeed.
    Unavailable,
    /// Another service did not answer in time.
    GatewayTimeout,
    /// The storage is full.
    NoSpace,
}

/// Placement's code for a refusal without a specific code.
pub(crate) const UNDEFINED_CODE: &str = "placement.undefined_code";

/// A refusal with its message for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The kind.
    pub kind: Kind,
    /// The message for the user: it names the resource and the remedy.
    pub message: String,
    /// Placement's error code, or Neutron's error type; the compute service shows none to clients.
    pub code: &'static str,
    /// The part for the operator's log, never shown to the user.
    pub internal: Option<Box<Internal>>,
    /// Additional keys of Placement's body.
    pub extra: Vec<(&'static str, String)>,
    /// Seconds after which a retry may succeed.
    pub retry_after: Option<u64>,
}

/// The part of a refusal that only the log contains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Internal {
    /// Details about the cause.
    pub cause: Option<String>,
    /// The message for the log, if it differs from the user's: a message that quotes the request may contain a
    /// password, which must not be logged.
    pub message: Option<String>,
}

/// An error that users may see: `?` turns it into a [`Refusal`], or into a [`Fault`](crate::Fault)
/// if the function returns one.
pub trait IntoRefusal {
    /// The refusal that the user sees.
    fn into_refusal(self) -> Refusal;
}

impl<E: IntoRefusal> From<E> for Refusal {
    fn from(error: E) -> Self {
        error.into_refusal()
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

impl Refusal {
    /// A refusal of any kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            code: UNDEFINED_CODE,
            internal: None,
            extra: Vec::new(),
            retry_after: None,
        }
    }

    /// [`Kind::BadRequest`].
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Kind::BadRequest, message)
    }

    /// [`Kind::Unauthorized`].
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(Kind::Unauthorized, message)
    }

    /// [`Kind::Forbidden`].
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(Kind::Forbidden, message)
    }

    /// [`Kind::NotFound`].
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, message)
    }

    /// [`Kind::NotAcceptable`].
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(Kind::NotAcceptable, message)
    }

    /// [`Kind::Conflict`].
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(Kind::Conflict, message)
    }

    /// [`Kind::Internal`] with a fixed message; the cause is only logged.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        Self::new(
            Kind::Internal,
            "An unexpected error prevented the server from fulfilling your request. \
             Give the request id of this answer to the operator.",
        )
        .with_internal(cause)
    }

    /// [`Kind::Unavailable`] with a fixed message: a dependency is unavailable or overloaded, and a
    /// retry may succeed. The cause is only logged.
    pub fn unavailable(cause: impl std::fmt::Display) -> Self {
        Self::new(
            Kind::Unavailable,
            "The service is overloaded or cannot reach its database. Try again shortly.",
        )
        .with_retry_after(1)
        .with_internal(cause)
    }

    /// [`Kind::NoSpace`]: the database's disk is full. Nothing was changed, and a retry would not
    /// help.
    pub fn no_space(cause: impl std::fmt::Display) -> Self {
        Self::new(
            Kind::NoSpace,
            "The service's storage is full. Nothing was changed. Tell the operator.",
        )
        .with_internal(cause)
    }

    /// Sets Placement's error code, or Neutron's type.
    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.code = code;
        self
    }

    /// Adds details for the log.
    #[must_use]
    pub fn with_internal(mut self, cause: impl std::fmt::Display) -> Self {
        self.internal.get_or_insert_default().cause = Some(cause.to_string());
        self
    }

    /// Sets another message for the log, without the secrets that the user's message may quote.
    #[must_use]
    pub fn with_logged(mut self, message: impl Into<String>) -> Self {
        self.internal.get_or_insert_default().message = Some(message.into());
        self
    }

    /// The details for the log.
    pub fn cause(&self) -> Option<&str> {
        self.internal.as_deref()?.cause.as_deref()
    }

    /// The message for the log.
    pub fn logged(&self) -> &str {
        let other = self.internal.as_deref().and_then(|internal| internal.message.as_deref());
        other.unwrap_or(&self.message)
    }

    /// Adds a key to Placement's body.
    #[must_use]
    pub fn with_extra(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.extra.push((key, value.into()));
        self
    }

    /// Sets the number of seconds after which the client may retry.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}
