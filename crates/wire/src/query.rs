//! Query strings, decoded, in order and with repeated keys.

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::Refusal;

/// The decoded `key=value` pairs of a query string.
#[derive(Debug, Clone, Default)]
pub struct Query(pub Vec<(String, String)>);

impl Query {
    /// Parses a raw query string.
    pub fn parse(raw: &str) -> Self {
        Self(
            raw.split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(key, value)| (decode(key), decode(value)))
                .collect(),
        )
    }

    /// The last value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(have, _)| have == key).map(|(_, value)| value.as_str())
    }

    /// All values of a key, in order.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(have, _)| have == key).map(|(_, value)| value.as_str())
    }

    /// Every key, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(key, _)| key.as_str())
    }

    /// The query in encoded form. `pairs` replace the earlier values of their keys, and come last.
    pub fn with(&self, pairs: &[(&str, &str)]) -> String {
        let pairs = || pairs.iter().copied();
        let kept = self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let kept = kept.filter(|(key, _)| pairs().all(|(other, _)| other != *key));
        kept.chain(pairs()).fold(String::new(), |mut out, (key, value)| {
            if !out.is_empty() {
                out.push('&');
            }
            escape(key, &mut out);
            out.push('=');
            escape(value, &mut out);
            out
        })
    }

    /// The query without a key.
    pub fn without(&self, key: &str) -> Self {
        Self(self.0.iter().filter(|(have, _)| have != key).cloned().collect())
    }

    /// The first key that is not in `known`.
    pub fn unknown(&self, known: &[&str]) -> Option<&str> {
        self.keys().find(|key| !known.contains(key))
    }
}

/// Percent-encodes a text as a segment of a path, or as a key or a value of a query.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    escape(text, &mut out);
    out
}

/// Percent-encodes all characters except letters, digits and `-._~:`.
fn escape(text: &str, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

fn decode(text: &str) -> String {
    String::from_utf8_lossy(&unescape(&text.replace('+', " "))).into_owned()
}

/// Decodes `%xx`; leaves malformed escapes unchanged.
fn unescape(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = bytes.get(at + 1..at + 3).filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        let escape = escape.and_then(|hex| std::str::from_utf8(hex).ok());
        match (bytes[at], escape.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 2;
            }
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    out
}

/// Maximum number of pairs in a query string, because some handlers compare each pair with each row. The servers in
/// front of upstream's services limit the request line to 8 KiB, so no real client sends as many.
const MAX_PAIRS: usize = 2_000;

/// Refuses a URI with a path that is not UTF-8, with a NUL character, which PostgreSQL cannot store, or with too many
/// pairs in its query string.
///
/// # Errors
/// 400.
pub(crate) fn check_readable(uri: &http::Uri) -> Result<(), Refusal> {
    let path = unescape(uri.path());
    if std::str::from_utf8(&path).is_err() {
        return Err(Refusal::bad_request("The path of the request is not UTF-8 text."));
    }
    if path.contains(&0) {
        return Err(Refusal::bad_request("The path of the request contains a NUL character."));
    }
    if uri.query().is_some_and(|query| unescape(query).contains(&0)) {
        return Err(Refusal::bad_request(
            "The query string of the request contains a NUL character.",
        ));
    }
    if uri.query().is_some_and(|query| query.split('&').count() > MAX_PAIRS) {
        return Err(Refusal::bad_request(format!(
            "The query string of the request has more than {MAX_PAIRS} parameters."
        )));
    }
    Ok(())
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        Ok(Self::parse(parts.uri.query().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_resolved_and_malformed_ones_kept() {
        let query = Query::parse("a=%41+b%2B&b=%zz%4&c=%+1&d");
        assert_eq!(query.get("a"), Some("A b+"));
        assert_eq!(query.get("b"), Some("%zz%4"));
        assert_eq!(query.get("c"), Some("% 1"));
        assert_eq!(query.get("d"), Some(""));
    }

    #[test]
    fn a_text_cannot_leave_its_place_in_a_path() {
        assert_eq!(escaped("../x?y=1&z#é"), "..%2Fx%3Fy%3D1%26z%23%C3%A9");
    }

    #[test]
    fn a_query_is_encoded_with_replaced_values() {
        let query = Query::parse("limit=1&name=a%20b&uuid%=%21&marker=old&marker=older&since=1:2");
        assert_eq!(
            query.with(&[("marker", "é&")]),
            "limit=1&name=a%20b&uuid%25=%21&since=1:2&marker=%C3%A9%26"
        );
        assert_eq!(Query::default().with(&[]), "");
    }

    #[test]
    fn nul_and_invalid_utf8_are_refused_where_they_cannot_be_stored() {
        let check = |uri: &str| check_readable(&uri.parse().expect("the URI is valid")).is_ok();
        assert!(check("/servers/%C3%A9?name=%2500&x=%FF"));
        assert!(!check("/servers/%FF"));
        assert!(!check("/servers/a%00"));
        assert!(!check("/servers?name=%00"));
    }

    #[test]
    fn a_query_has_a_bounded_number_of_pairs() {
        let check = |pairs: usize| {
            let uri = format!("/servers?{}", vec!["a=b"; pairs].join("&"));
            check_readable(&uri.parse().expect("the URI is valid")).is_ok()
        };
        assert!(check(MAX_PAIRS));
        assert!(!check(MAX_PAIRS + 1));
    }
}
