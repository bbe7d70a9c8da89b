//! The fault type of all services: a status, a message for the user, and details for the log only.
//! The service's dialect turns it into a body at the very edge.

use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::refusal::{IntoRefusal, Kind, Refusal};

/// An error answer.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The HTTP status.
    pub status: StatusCode,
    /// The message for the user: it names the resource and the remedy.
    pub message: String,
    /// Placement's error code, or Neutron's error type; other dialects omit it.
    pub code: &'static str,
    /// Details for the operator's log, never shown to the user.
    pub internal: Option<String>,
    /// Extra headers, such as `WWW-Authenticate`.
    pub headers: Box<HeaderMap>,
    /// More keys of Placement's body.
    pub extra: Vec<(&'static str, String)>,
    /// True if no operation was reached (no such path, method or version); some dialects word this
    /// differently.
    pub unrouted: bool,
}

/// Placement's code for a fault without a code of its own.
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

    /// 500 with a fixed message; the cause is only logged.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        Refusal::internal(cause).into()
    }

    /// Sets Placement's error code, or Neutron's type.
    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> Self {
        self.code = code;
        self
    }

    /// Marks that no operation was reached.
    #[must_use]
    pub fn unrouted(mut self) -> Self {
        self.unrouted = true;
        self
    }

    /// Adds details for the log.
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

/// The status of a refusal.
fn status(kind: Kind) -> StatusCode {
    match kind {
        Kind::BadRequest => StatusCode::BAD_REQUEST,
        Kind::Unauthorized => StatusCode::UNAUTHORIZED,
        Kind::Forbidden => StatusCode::FORBIDDEN,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
        Kind::Timeout => StatusCode::REQUEST_TIMEOUT,
        Kind::Conflict => StatusCode::CONFLICT,
        Kind::Gone => StatusCode::GONE,
        Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Kind::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Kind::Unprocessable => StatusCode::UNPROCESSABLE_ENTITY,
        Kind::Locked => StatusCode::LOCKED,
        Kind::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
        Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Kind::NotImplemented => StatusCode::NOT_IMPLEMENTED,
        Kind::BadGateway => StatusCode::BAD_GATEWAY,
        Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Kind::GatewayTimeout => StatusCode::GATEWAY_TIMEOUT,
        Kind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        let mut fault = Self::new(status(refusal.kind), refusal.message).with_code(refusal.code);
        fault.internal = refusal.internal;
        fault.extra = refusal.extra;
        if let Some(seconds) = refusal.retry_after {
            fault = fault.with_header(header::RETRY_AFTER, seconds.into());
        }
        fault
    }
}

impl<E: IntoRefusal> From<E> for Fault {
    fn from(error: E) -> Self {
        error.into_refusal().into()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        Fault::from(self).into_response()
    }
}

impl IntoResponse for Fault {
    /// An empty answer that carries the fault; [`crate::mount`] writes the body.
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.headers_mut().extend(HeaderMap::clone(&self.headers));
        response.extensions_mut().insert(self);
        response
    }
}
