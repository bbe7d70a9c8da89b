//! The form of a [`Refusal`] in HTTP: its status, its headers, and whether the request reached an
//! operation. The service's dialect turns it into a body at the edge.
//!
//! All code, including `api/`, refuses with a [`Refusal`], which implements [`IntoResponse`]. A
//! `Fault` only adds the parts that a refusal cannot express:
//! `Fault::from(refusal).with_header(..)` or `.unrouted()`; a handler that needs neither returns a
//! `Refusal`. This file must never repeat a field or a constructor of [`Refusal`]. The status
//! follows only from the kind.

use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::refusal::{IntoRefusal, Kind, Refusal};

/// An error answer.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The refusal.
    pub refusal: Refusal,
    /// Headers that do not follow from the refusal, such as `WWW-Authenticate`.
    pub headers: Box<HeaderMap>,
    /// True if the request reached no operation (no such path, method or version); some dialects
    /// word this differently.
    pub unrouted: bool,
}

impl Fault {
    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        status(self.refusal.kind)
    }

    /// Marks the fault of a request that reached no operation.
    #[must_use]
    pub fn unrouted(mut self) -> Self {
        self.unrouted = true;
        self
    }

    /// Adds a header to the answer.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Writes all headers of the fault to an answer.
    pub(crate) fn write_headers(&self, answer: &mut HeaderMap) {
        if let Some(seconds) = self.refusal.retry_after {
            answer.insert(header::RETRY_AFTER, seconds.into());
        }
        answer.extend(HeaderMap::clone(&self.headers));
    }
}

/// The status of a refusal.
fn status(kind: Kind) -> StatusCode {
    match kind {
        Kind::BadRequest => StatusCode::BAD_REQUEST,
        Kind::Unauthorized => StatusCode::UNAUTHORIZED,
        Kind::Forbidden => StatusCode::FORBIDDEN,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        Kind::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
        Kind::Timeout => StatusCode::REQUEST_TIMEOUT,
        Kind::Conflict => StatusCode::CONFLICT,
        Kind::Gone => StatusCode::GONE,
        Kind::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
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
        Self { refusal, headers: Box::default(), unrouted: false }
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
        let mut response = self.status().into_response();
        self.write_headers(response.headers_mut());
        response.extensions_mut().insert(self);
        response
    }
}
