//! Checks the `Origin` header like Nova's proxy: a page of another site must not open a console with its
//! visitor's cookies and network access (cross-site websocket hijacking).

use http::{HeaderMap, header};

const INVALID: &str = "Origin header not valid.";
const FOREIGN: &str = "Origin header does not match this host.";
const OTHER_SCHEME: &str = "Origin header protocol does not match this host.";

/// Checks the origin of the page that requests a console. `base` is the base URL for which the
/// token was issued, and `own` the URL at which the client reached this process.
///
/// # Errors
/// The reason, in Nova's words.
pub(super) fn check(
    headers: &HeaderMap,
    base: &str,
    own: &str,
    allowed: &[String],
) -> Result<(), &'static str> {
    // Browsers always send this header, so this client is not a browser.
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let (scheme, host) = origin.to_str().ok().and_then(split).ok_or(INVALID)?;
    // A browser cannot set this header; a proxy that terminates TLS does.
    let forwarded = headers.get("x-forwarded-proto").and_then(|value| value.to_str().ok());
    let scheme = forwarded.unwrap_or(scheme);
    if scheme.is_empty() || host.is_empty() {
        return Err(INVALID);
    }
    let sent = headers.get(header::HOST).and_then(|value| value.to_str().ok()).map(host_of);
    let own = split(own).map(|(_, host)| host);
    let expected = sent.iter().chain(own.iter()).copied();
    let mut expected = expected.chain(allowed.iter().map(String::as_str));
    if !expected.any(|expected| expected.eq_ignore_ascii_case(host)) {
        return Err(FOREIGN);
    }
    let wanted = match split(base).map(|(scheme, _)| scheme) {
        Some("ws") => ["ws", "http"],
        Some("wss") => ["wss", "https"],
        Some("https") => ["https", "https"],
        _ => ["http", "http"],
    };
    if wanted.contains(&scheme) { Ok(()) } else { Err(OTHER_SCHEME) }
}

/// The scheme and the host of a URL.
fn split(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    Some((scheme, host_of(authority)))
}

/// The host of `HOST:PORT` or `[HOST]:PORT`.
fn host_of(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn checked(headers: &[(&'static str, &'static str)], base: &str) -> Result<(), &'static str> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_static(value));
        }
        check(&map, base, "http://public.example", &["horizon.example".to_owned()])
    }

    /// Headers, the base URL and the outcome.
    type Case = (&'static [(&'static str, &'static str)], &'static str, Result<(), &'static str>);

    #[test]
    fn the_table() {
        const HTTP: &str = "http://c:6080/vnc_auto.html";
        const HTTPS: &str = "https://c/vnc_auto.html";
        let cases: &[Case] = &[
            (&[("host", "c:6080")], HTTP, Ok(())),
            (&[("host", "c:6080"), ("origin", "http://c:6080")], HTTP, Ok(())),
            (&[("host", "c"), ("origin", "http://c:99")], HTTP, Ok(())),
            (&[("host", "C"), ("origin", "http://c")], HTTP, Ok(())),
            (&[("host", "[::1]:6080"), ("origin", "http://[::1]:6080")], HTTP, Ok(())),
            (&[("host", "c"), ("origin", "http://horizon.example")], HTTP, Ok(())),
            (&[("host", "inner"), ("origin", "http://public.example")], HTTP, Ok(())),
            (&[("host", "c"), ("origin", "http://evil.example")], HTTP, Err(FOREIGN)),
            (&[("host", "c"), ("origin", "http://c.evil.example")], HTTP, Err(FOREIGN)),
            (&[("host", "c"), ("origin", "http://evil.example:80/c")], HTTP, Err(FOREIGN)),
            (&[("origin", "http://c")], HTTP, Err(FOREIGN)),
            (&[("host", "c"), ("origin", "null")], HTTP, Err(INVALID)),
            (&[("host", "c"), ("origin", "")], HTTP, Err(INVALID)),
            (&[("host", "c"), ("origin", "http://")], HTTP, Err(INVALID)),
            (&[("host", "c"), ("origin", "://c")], HTTP, Err(INVALID)),
            (&[("host", "c"), ("origin", "https://c")], HTTP, Err(OTHER_SCHEME)),
            (&[("host", "c"), ("origin", "http://c")], HTTPS, Err(OTHER_SCHEME)),
            (&[("host", "c"), ("origin", "https://c")], HTTPS, Ok(())),
            (
                &[("host", "c"), ("origin", "http://c"), ("x-forwarded-proto", "https")],
                HTTPS,
                Ok(()),
            ),
            (
                &[("host", "c"), ("origin", "https://c"), ("x-forwarded-proto", "http")],
                HTTPS,
                Err(OTHER_SCHEME),
            ),
            (&[("host", "c"), ("origin", "http://c")], "ws://c:6083/", Ok(())),
            (&[("host", "c"), ("origin", "https://c")], "wss://c:6083/", Ok(())),
            (&[("host", "c"), ("origin", "http://c")], "wss://c:6083/", Err(OTHER_SCHEME)),
        ];
        for (headers, base, expected) in cases {
            assert_eq!(checked(headers, base), *expected, "{headers:?} {base}");
        }
    }
}
