//! The authentication interface: turns a token into a [`Context`]. The identity service implements
//! it for its own tokens, and [`crate::noauth`] implements it by trusting headers. Services cannot
//! tell the two apart.

use std::future::Future;
use std::pin::Pin;

use http::HeaderMap;

use crate::{Context, Fault};

/// The future that [`Authenticator::authenticate`] returns.
pub type Authentication<'a> = Pin<Box<dyn Future<Output = Result<Context, Fault>> + Send + 'a>>;

/// Authenticates a request: returns its context, or a 401.
pub trait Authenticator: Send + Sync {
    /// Reads `X-Auth-Token` and, if present, `X-Service-Token`. The caller sets the request id of the
    /// returned context.
    fn authenticate<'a>(&'a self, headers: &'a HeaderMap) -> Authentication<'a>;
}
