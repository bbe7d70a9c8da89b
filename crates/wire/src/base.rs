//! The URL under which the caller reached the service, for links in answers.

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::Fault;

/// `http://127.0.0.1:8774/compute`, without a slash at the end. The host is the caller's `Host`
/// header, so that links work through a forwarder.
#[derive(Debug, Clone)]
pub struct Base(pub String);

impl Base {
    pub(crate) fn of(parts: &http::request::Parts, prefix: &str) -> Self {
        let host = parts
            .headers
            .get(http::header::HOST)
            .and_then(|host| host.to_str().ok())
            .filter(|host| {
                host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b))
            })
            .unwrap_or("localhost");
        Self(format!("http://{host}{prefix}"))
    }
}

impl<S: Sync> FromRequestParts<S> for Base {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fault> {
        parts
            .extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(|| Fault::internal("the service is not mounted"))
    }
}
