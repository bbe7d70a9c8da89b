//! One domain fault for all services: a status, a sentence for the user, and what only the log is
//! told. The service's dialect turns it into a body at the very edge.

use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};

/// An answer that is not what the caller wished.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The HTTP status.
    pub status: StatusCode,
    /// The sentence that the user reads: it names the thing and says what to do.
    pub message: String,
    /// Placement's machine-readable code, and Neutron's type of the error; other dialects do not
    /// show it.
    pub code: &'static str,
    /// What the operator's log gets and the user does not.
    pub internal: Option<String>,
    /// Extra headers, such as `WWW-Authenticate`.
    pub headers: Box<HeaderMap>,
    /// More that Placement's body says, by key.
    pub extra: Vec<(&'static str, String)>,
    /// Whether it was refused before any operation was reached (no such path, method or version),
    /// which some dialects word in another way.
    pub unrouted: bool,
}

/// Placement's code for a fault without one of its own.
pub const UNDEFINED_CODE: &str = "placement.undefined_code";

impl Fault {
    /// A fault with any status.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            code: UNDEFINED_CODE,
            internal: None,
            headers: Box::default(),
            extra: Vec::new(),
            unrouted: false,
        }
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 401.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, message)
    }

    /// 403.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    /// 404.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// 406.
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, message)
    }

    /// 409.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    /// 500; the user sees a fixed sentence, the log the cause.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        let mut fault = Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "An unexpected error prevented the server from fulfilling your request. \
             Give the request id of this answer to the operator.",
        );
        fault.internal = Some(cause.to_string());
        fault
    }

    /// 503: something that the service needs is away or has too much to do, and the same request may
    /// work soon. The user sees a fixed sentence, the log the cause.
    pub fn unavailable(cause: impl std::fmt::Display) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "The service has too much to do, or cannot reach its database. Try again shortly.",
        )
        .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
        .with_internal(cause)
    }

    /// 507: the database's disk is full. Nothing was changed, and a repetition would not help.
    pub fn no_space(cause: impl std::fmt::Display) -> Self {
        Self::new(
            StatusCode::INSUFFICIENT_STORAGE,
            "The service has no space left to store this. Nothing was changed. Tell the operator.",
        )
        .with_internal(cause)
    }

    /// Sets Placement's error code, or Neutron's type.
    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.code = code;
        self
    }

    /// Says that no operation was reached.
    #[must_use]
    pub fn unrouted(mut self) -> Self {
        self.unrouted = true;
        self
    }

    /// Adds what the log shall say.
    #[must_use]
    pub fn with_internal(mut self, cause: impl std::fmt::Display) -> Self {
        self.internal = Some(cause.to_string());
        self
    }

    /// Adds a key to Placement's body.
    #[must_use]
    pub fn with_extra(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.extra.push((key, value.into()));
        self
    }

    /// Adds a header to the answer.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }
}

impl IntoResponse for Fault {
    /// An empty answer that carries the fault; [`crate::mount`] writes the body in the dialect.
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.headers_mut().extend(HeaderMap::clone(&self.headers));
        response.extensions_mut().insert(self);
        response
    }
}
