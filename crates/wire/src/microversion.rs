//! Microversions: header parsing, and the interface by which each service negotiates a version.

use std::fmt;

use axum::extract::FromRequestParts;
use http::HeaderMap;
use http::request::Parts;

use crate::{Fault, Refusal};

/// `major.minor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Microversion(pub u32, pub u32);

impl fmt::Display for Microversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl Microversion {
    /// Parses `2.53`; refuses leading zeros and signs, as upstream does.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        let number = |part: &str| {
            let plain = part.bytes().all(|b| b.is_ascii_digit());
            let no_leading_zero = part == "0" || !part.starts_with('0');
            (plain && no_leading_zero).then(|| part.parse().ok()).flatten()
        };
        Some(Self(number(major)?, number(minor)?))
    }
}

impl<S: Sync> FromRequestParts<S> for Microversion {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        parts
            .extensions
            .get::<Self>()
            .copied()
            .ok_or_else(|| Refusal::internal("no microversion was negotiated on this route"))
    }
}

/// The microversion negotiation of a service.
pub trait Negotiate: Send + Sync {
    /// Chooses the version of a request.
    ///
    /// # Errors
    /// 400 for a malformed version, 406 for an unsupported one, with the service's message.
    fn negotiate(&self, headers: &HeaderMap) -> Result<Microversion, Fault>;

    /// Sets the version headers of the answer; `version` is `None` if negotiation failed.
    fn stamp(&self, version: Option<Microversion>, headers: &mut HeaderMap);
}

/// The version that `OpenStack-API-Version` requests for a service type: `2.53` or `latest`. The header
/// may name several services, separated by commas.
pub fn requested<'a>(headers: &'a HeaderMap, service_type: &str) -> Option<&'a str> {
    headers
        .get_all("openstack-api-version")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|entry| entry.trim().split_once(char::is_whitespace))
        .filter(|(service, _)| service.eq_ignore_ascii_case(service_type))
        .map(|(_, version)| version.trim())
        .next_back()
}
