//! The URL at which the caller reached the service, for links in answers.

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::{Origin, Refusal};

/// `http://127.0.0.1:8774/compute`, without a trailing slash: the [`Origin`] that the listener set
/// (without a listener, the `Host` header), followed by the mount point.
#[derive(Debug, Clone)]
pub struct Base(pub String);

impl Base {
    pub(crate) fn of(parts: &Parts, prefix: &str) -> Self {
        Self(format!("{}{prefix}", origin(parts)))
    }
}

/// The scheme, host and port of the request's URL.
pub(crate) fn origin(parts: &Parts) -> std::sync::Arc<str> {
    match parts.extensions.get::<Origin>() {
        Some(Origin(origin)) => std::sync::Arc::clone(origin),
        None => format!("http://{}", host(&parts.headers).unwrap_or("localhost")).into(),
    }
}

/// The `Host` header, if it is a valid authority.
pub fn host(headers: &http::HeaderMap) -> Option<&str> {
    headers
        .get(http::header::HOST)
        .and_then(|host| host.to_str().ok())
        .filter(|host| has_authority_characters(host))
}

/// True if a text contains only the characters of `HOST` or `HOST:PORT`, so that it is safe in a link.
pub fn has_authority_characters(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b))
}

/// True if a text is a valid prefix between authority and path: empty, or `/a/b`.
pub fn is_prefix(text: &str) -> bool {
    let fine = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b))
    };
    text.is_empty() || text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(fine))
}

impl<S: Sync> FromRequestParts<S> for Base {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        parts
            .extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(|| Refusal::internal("the service is not mounted"))
    }
}
