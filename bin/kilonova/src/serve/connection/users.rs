//! The client's address and the origin of its URL, determined once per request from the connection, the
//! headers of trusted proxies, and `[api] public_endpoint`.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::Request;
use kilonova_wire::{Origin, PeerAddress, base};

use super::forwarded;
use crate::config::{Front, Proxies};

/// Determines the origin of users' requests.
#[derive(Clone)]
pub(in crate::serve) struct RequestOrigin(Arc<Inner>);

struct Inner {
    scheme: &'static str,
    endpoint: Option<Arc<str>>,
    proxies: Proxies,
}

impl RequestOrigin {
    /// Configured by the options.
    pub(in crate::serve) fn new(front: &Front) -> Self {
        Self(Arc::new(Inner {
            scheme: if front.tls.is_some() { "https" } else { "http" },
            endpoint: front.public_endpoint.clone(),
            proxies: front.proxies.clone(),
        }))
    }

    /// Stores the client's address and origin in the request. `peer` is the connection's other end.
    pub(in crate::serve) fn note<B>(&self, request: &mut Request<B>, peer: IpAddr) {
        let peer = peer.to_canonical();
        let trusted = self.0.proxies.contain(peer);
        let given = trusted.then(|| forwarded::read(request.headers(), &self.0.proxies));
        let given = given.unwrap_or_default();
        let origin = self.0.endpoint.clone().unwrap_or_else(|| {
            let host = given.host.as_deref().or_else(|| base::host(request.headers()));
            let host = host.unwrap_or("localhost");
            let prefix = given.prefix.as_deref().unwrap_or_default();
            format!("{}://{host}{prefix}", given.proto.unwrap_or(self.0.scheme)).into()
        });
        let extensions = request.extensions_mut();
        extensions.insert(PeerAddress(given.client.unwrap_or(peer)));
        extensions.insert(Origin(origin));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TlsFiles;

    fn noted(front: &Front, peer: &str, headers: &[(&str, &str)]) -> (String, String) {
        let mut request = http::Request::builder().uri("/compute");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(()).expect("the request is valid");
        RequestOrigin::new(front).note(&mut request, peer.parse().expect("the address is valid"));
        let address = request.extensions().get::<PeerAddress>().expect("the extension exists").0;
        let Origin(origin) = request.extensions().get::<Origin>().expect("the extension exists");
        (address.to_string(), origin.to_string())
    }

    #[test]
    fn only_configured_proxies_are_trusted() {
        let proxies = Proxies::new(vec!["10.0.0.0/8".parse().expect("the network is valid")]);
        let front = Front { proxies, ..Front::default() };
        let headers = [
            ("host", "inner:8774"),
            ("x-forwarded-for", "192.0.2.9"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "cloud.example"),
            ("x-forwarded-prefix", "/os"),
        ];
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let trusted = noted(&front, "::ffff:10.1.2.3", &headers);
        assert_eq!(trusted, pair("192.0.2.9", "https://cloud.example/os"));
        let stranger = noted(&front, "192.0.2.5", &headers);
        assert_eq!(stranger, pair("192.0.2.5", "http://inner:8774"));
        let nobody = noted(&Front::default(), "10.1.2.3", &headers);
        assert_eq!(nobody, pair("10.1.2.3", "http://inner:8774"));
    }

    #[test]
    fn the_public_endpoint_takes_precedence_over_headers() {
        let tls = TlsFiles { cert: "c".into(), key: "k".into(), cafile: None };
        let front = Front { tls: Some(tls), ..Front::default() };
        let origin = |front: &Front, host| noted(front, "192.0.2.5", &[("host", host)]).1;
        assert_eq!(origin(&front, "a:1"), "https://a:1");
        assert_eq!(origin(&front, "a b<"), "https://localhost");
        let front = Front { public_endpoint: Some("https://cloud".into()), ..front };
        assert_eq!(origin(&front, "a:1"), "https://cloud");
    }
}
