//! Forwarding headers of proxies: RFC 7239's `Forwarded`, and the older `X-Forwarded-*`. Pure: the
//! caller decides which peers to trust.
//!
//! Each proxy appends what it saw, so a list is read from its end, and only as long as the address is a
//! trusted proxy's. Elements further left can be forged.

use std::net::IpAddr;

use http::HeaderMap;
use kilonova_wire::base::{has_authority_characters, is_prefix};

use crate::config::Proxies;

/// A request's origin according to trusted proxies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Forwarded {
    /// The client of the outermost proxy.
    pub client: Option<IpAddr>,
    /// The client's scheme, `http` or `https`.
    pub proto: Option<&'static str>,
    /// The host and port in the client's URL.
    pub host: Option<String>,
    /// The path prefix that the proxy removed.
    pub prefix: Option<String>,
}

/// Parses the headers of a request from a trusted proxy.
pub(super) fn read(headers: &HeaderMap, proxies: &Proxies) -> Forwarded {
    let mut given = match list(headers, "forwarded").as_slice() {
        [] => before_rfc7239(headers, proxies),
        elements => rfc7239(elements, proxies),
    };
    let prefix = list(headers, "x-forwarded-prefix").pop();
    given.prefix = prefix
        .map(|text| text.trim_end_matches('/').to_owned())
        .filter(|text| !text.is_empty() && is_prefix(text));
    given
}

fn rfc7239(elements: &[String], proxies: &Proxies) -> Forwarded {
    let mut parsed = Forwarded::default();
    for element in elements.iter().rev() {
        let mut client = None;
        for (name, value) in element.split(';').filter_map(|pair| pair.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "for" => client = address(value),
                "proto" => parsed.proto = proto(value).or(parsed.proto),
                "host" if has_authority_characters(value) => parsed.host = Some(value.to_owned()),
                _ => {}
            }
        }
        let Some(client) = client else { break };
        parsed.client = Some(client);
        if !proxies.contain(client) {
            break;
        }
    }
    parsed
}

fn before_rfc7239(headers: &HeaderMap, proxies: &Proxies) -> Forwarded {
    let clients = list(headers, "x-forwarded-for");
    let mut parsed = Forwarded::default();
    let mut hops = 0;
    for text in clients.iter().rev() {
        let Some(client) = address(text) else { break };
        parsed.client = Some(client);
        hops += 1;
        if !proxies.contain(client) {
            break;
        }
    }
    // A list with one element per hop is read at the client's hop; otherwise its last element is that of
    // the nearest proxy.
    let at = |name| {
        let mut values = list(headers, name);
        let whole = hops > 0 && values.len() == clients.len();
        let at = values.len().checked_sub(if whole { hops } else { 1 })?;
        Some(values.swap_remove(at))
    };
    parsed.proto = at("x-forwarded-proto").as_deref().and_then(proto);
    parsed.host = at("x-forwarded-host").filter(|host| has_authority_characters(host));
    if let Some(host) = &mut parsed.host
        && !has_port(host)
        && let Some(port) = at("x-forwarded-port").and_then(|port| port.parse::<u16>().ok())
        && port != if parsed.proto == Some("https") { 443 } else { 80 }
    {
        host.push_str(&format!(":{port}"));
    }
    parsed
}

/// The elements of a list header, over all its lines. Commas in quotes do not separate.
fn list(headers: &HeaderMap, name: &str) -> Vec<String> {
    let mut elements = Vec::new();
    for line in headers.get_all(name).iter().filter_map(|value| value.to_str().ok()) {
        let mut quoted = false;
        let parts = line.split(|c| {
            quoted ^= c == '"';
            c == ',' && !quoted
        });
        elements.extend(parts.map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()));
    }
    elements
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim_matches('"');
    let bare = match text.strip_prefix('[') {
        Some(rest) => rest.split(']').next()?,
        None => text,
    };
    let found: Option<IpAddr> = bare.parse().ok();
    let found = found.or_else(|| bare.rsplit_once(':')?.0.parse().ok());
    found.map(|address| address.to_canonical())
}

fn proto(text: &str) -> Option<&'static str> {
    ["http", "https"].into_iter().find(|known| text.eq_ignore_ascii_case(known))
}

fn has_port(host: &str) -> bool {
    let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
    after.contains(':')
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn forwarded(headers: &[(&'static str, &str)]) -> Forwarded {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let value = HeaderValue::from_str(value).expect("the header value is valid");
            map.append(HeaderName::from_static(name), value);
        }
        let networks =
            ["10.0.0.0/8", "::1/128"].map(|one| one.parse().expect("the network is valid"));
        read(&map, &Proxies::new(networks.to_vec()))
    }

    fn expect(client: &str, proto: &'static str, host: &str, prefix: &str) -> Forwarded {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Forwarded {
            client: client.parse().ok(),
            proto: (!proto.is_empty()).then_some(proto),
            host: some(host),
            prefix: some(prefix),
        }
    }

    #[test]
    fn the_nearest_untrusted_address_is_the_client() {
        for (headers, expected) in [
            (vec![], expect("", "", "", "")),
            (vec![("x-forwarded-for", "192.0.2.1")], expect("192.0.2.1", "", "", "")),
            // The client forged the first; the proxy saw the second.
            (vec![("x-forwarded-for", "1.1.1.1, 192.0.2.1")], expect("192.0.2.1", "", "", "")),
            (
                vec![("x-forwarded-for", "1.1.1.1, 192.0.2.1"), ("x-forwarded-for", "10.0.0.2")],
                expect("192.0.2.1", "", "", ""),
            ),
            (vec![("x-forwarded-for", "1.1.1.1, nonsense")], expect("", "", "", "")),
            (vec![("x-forwarded-for", "::ffff:192.0.2.1")], expect("192.0.2.1", "", "", "")),
            (
                vec![("forwarded", "for=1.1.1.1;proto=http, for=\"[2001:db8::7]:80\";proto=https")],
                expect("2001:db8::7", "https", "", ""),
            ),
            (
                vec![
                    ("forwarded", "for=192.0.2.9;host=made.up, for=192.0.2.1;host=a.b;proto=https"),
                    ("forwarded", "for=10.0.0.2;host=inner;proto=http"),
                ],
                expect("192.0.2.1", "https", "a.b", ""),
            ),
            (vec![("forwarded", "for=unknown;proto=https")], expect("", "https", "", "")),
        ] {
            assert_eq!(forwarded(&headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn proto_host_port_and_prefix_are_those_of_the_same_hop() {
        for (headers, expected) in [
            (
                vec![("x-forwarded-proto", "https"), ("x-forwarded-host", "a.b:8443")],
                expect("", "https", "a.b:8443", ""),
            ),
            (
                vec![
                    ("x-forwarded-for", "192.0.2.1, 10.0.0.2"),
                    ("x-forwarded-proto", "https, http"),
                    ("x-forwarded-host", "a.b"),
                    ("x-forwarded-port", "8443"),
                ],
                expect("192.0.2.1", "https", "a.b:8443", ""),
            ),
            (
                vec![
                    ("x-forwarded-proto", "https"),
                    ("x-forwarded-host", "a.b"),
                    ("x-forwarded-port", "443"),
                    ("x-forwarded-prefix", "/cloud/"),
                ],
                expect("", "https", "a.b", "/cloud"),
            ),
            (
                vec![
                    ("x-forwarded-proto", "gopher"),
                    ("x-forwarded-host", "a\"b"),
                    ("x-forwarded-prefix", "//evil?x"),
                ],
                expect("", "", "", ""),
            ),
        ] {
            assert_eq!(forwarded(&headers), expected, "{headers:?}");
        }
    }
}
