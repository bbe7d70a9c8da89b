//! The caller's address, and the URL at which the caller reached this process. The listener
//! stores both in the request's extensions.
//!
//! This file must never read a header: which headers are trusted depends on the peer, which only the
//! listener knows.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::extract::FromRequestParts;
use http::request::Parts;

/// The caller's address: the connection's, or the one named by a trusted proxy.
///
/// `0.0.0.0` for a request without a listener, as in tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerAddress(pub IpAddr);

impl PeerAddress {
    /// The address that identifies the caller for fair queueing: for IPv6, its /64 network.
    pub fn fairness_key(self) -> IpAddr {
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

/// Marks a request whose path ended in a slash, which the listener removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndsInSlash;

/// `https://cloud.example/prefix`, without a trailing slash: the start of links in answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin(pub std::sync::Arc<str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_network_count_as_one_client() {
        let fairness_key = |text: &str| PeerAddress(text.parse().unwrap()).fairness_key();
        assert_eq!(fairness_key("2001:db8::1"), fairness_key("2001:db8::ffff:2"));
        assert_ne!(fairness_key("2001:db8::1"), fairness_key("2001:db8:0:1::1"));
        assert_eq!(fairness_key("::ffff:192.0.2.1"), fairness_key("192.0.2.1"));
        assert_ne!(fairness_key("192.0.2.2"), fairness_key("192.0.2.1"));
    }
}
