//! Where a request comes from, and under which URL the caller reached this process. The listener
//! puts both into the request's extensions; everything above reads them here.
//!
//! This file must never read a header: which headers count depends on who sent them, and only the
//! listener knows that.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::extract::FromRequestParts;
use http::request::Parts;

/// The caller's address: the connection's, or the one that a trusted proxy names.
///
/// A request that came through no listener, as in tests, has `0.0.0.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerAddress(pub IpAddr);

impl PeerAddress {
    /// The address by which callers are told apart: an IPv6 caller owns the whole /64.
    pub fn party(self) -> IpAddr {
        match self.0.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
            }
        }
    }
}

impl<S: Sync> FromRequestParts<S> for PeerAddress {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let known = parts.extensions.get::<Self>().copied();
        Ok(known.unwrap_or(Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED))))
    }
}

/// The path ended in a slash, which the listener cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndsInSlash;

/// `https://cloud.example/prefix`, without a slash at the end: what links in answers begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(pub std::sync::Arc<str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_network_are_one_party() {
        let party = |text: &str| PeerAddress(text.parse().unwrap()).party();
        assert_eq!(party("2001:db8::1"), party("2001:db8::ffff:2"));
        assert_ne!(party("2001:db8::1"), party("2001:db8:0:1::1"));
        assert_eq!(party("::ffff:192.0.2.1"), party("192.0.2.1"));
        assert_ne!(party("192.0.2.2"), party("192.0.2.1"));
    }
}
