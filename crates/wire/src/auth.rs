//! The door: who turns a token into a [`Context`]. Identity does it with its own tokens,
//! [`crate::noauth`] by believing headers; the services cannot tell which.

use std::future::Future;
use std::pin::Pin;

use http::HeaderMap;

use crate::{Context, Fault};

/// The future of an authentication.
pub type Authentication<'a> = Pin<Box<dyn Future<Output = Result<Context, Fault>> + Send + 'a>>;

/// Turns request headers into a context, or into a 401.
pub trait Authenticator: Send + Sync {
    /// Reads `X-Auth-Token` and, where it is sent, `X-Service-Token`. The request id of the
    /// returned context is set by the caller.
    fn authenticate<'a>(&'a self, headers: &'a HeaderMap) -> Authentication<'a>;
}
