//! Where a request comes from, and under which URL the caller reached this process. The listener
//! puts both into the request's extensions; everything above reads them here.
//!
//! This file must never read a header: which headers count depends on who sent them, and only the
//! listener knows that.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};

use axum::extract::FromRequestParts;
use http::request::Parts;

/// The caller's address: the connection's, or the one that a trusted proxy names.
///
/// A request that came through no listener, as in tests, has `0.0.0.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerAddress(pub IpAddr);

impl<S: Sync> FromRequestParts<S> for PeerAddress {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let known = parts.extensions.get::<Self>().copied();
        Ok(known.unwrap_or(Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED))))
    }
}

/// `https://cloud.example/prefix`, without a slash at the end: what links in answers begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(pub std::sync::Arc<str>);
