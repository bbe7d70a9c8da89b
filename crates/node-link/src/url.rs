//! Parses the operator's URL and token.

use std::fmt::Write;

/// Why there is no connection to the controller.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The URL is invalid.
    #[error("{0:?} is not a URL of a controller, such as {1}://192.0.2.1:8774")]
    Url(String, &'static str),
    /// The token is invalid.
    #[error("the token is empty or has invalid characters; copy the file node.token again")]
    Token,
    /// The host's identity cannot be used.
    #[error("{file}: {why}", file = .file.display())]
    Identity {
        /// The file.
        file: std::path::PathBuf,
        /// The reason.
        why: String,
    },
    /// A certificate or a key is invalid.
    #[error(transparent)]
    Pki(#[from] kilonova_pki::Error),
    /// The controller refused.
    #[error("{0}")]
    Refused(kilonova_node_api::Refusal),
    /// The HTTP client could not be created.
    #[error("cannot create an HTTP client: {0}")]
    Client(String),
}

/// The base URL of the node routes, for a URL with the scheme `http` or `https`.
pub(super) fn base(url: &str, scheme: &'static str) -> Result<String, Error> {
    let wrong = || Error::Url(url.to_owned(), scheme);
    let parsed = reqwest::Url::parse(url.trim()).map_err(|_| wrong())?;
    let bare = parsed.query().is_none() && parsed.fragment().is_none();
    if parsed.scheme() != scheme || !parsed.has_host() || !parsed.username().is_empty() || !bare {
        return Err(wrong());
    }
    Ok(format!("{}/node", parsed.as_str().trim_end_matches('/')))
}

pub(super) fn token(token: &str) -> Result<String, Error> {
    let token = token.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::Token);
    }
    Ok(token.to_owned())
}

/// A host name as a path segment.
pub(super) fn segment(name: &str) -> String {
    let mut segment = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~') {
            segment.push(char::from(byte));
        } else {
            // Dots are escaped too, because `..` would be interpreted.
            let written = write!(segment, "%{byte:02X}");
            debug_assert!(written.is_ok());
        }
    }
    segment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_needs_scheme_and_host() {
        let plain = |url| base(url, "http");
        assert_eq!(plain("http://127.0.0.1:8774"), Ok("http://127.0.0.1:8774/node".into()));
        assert_eq!(plain(" http://cloud/x/ "), Ok("http://cloud/x/node".into()));
        assert_eq!(base("https://cloud:8775", "https"), Ok("https://cloud:8775/node".into()));
        for wrong in
            ["", "127.0.0.1:8774", "ftp://cloud", "http://u:p@cloud", "http://c/?a=1", "https://c"]
        {
            assert_eq!(plain(wrong), Err(Error::Url(wrong.into(), "http")), "{wrong}");
        }
        let wrong = base("http://cloud", "https").expect_err("a URL without TLS is refused");
        assert!(wrong.to_string().contains("https://192"), "{wrong}");
    }

    #[test]
    fn host_names_are_one_path_segment() {
        assert_eq!(segment("gpu-1"), "gpu-1");
        assert_eq!(segment("a.b/c d"), "a%2Eb%2Fc%20d");
        assert_eq!(segment("ü"), "%C3%BC");
    }

    #[test]
    fn tokens_are_trimmed_and_printable() {
        assert_eq!(token(" abc\n"), Ok("abc".into()));
        assert_eq!(token(" \n"), Err(Error::Token));
        assert_eq!(token("a b"), Err(Error::Token));
    }
}
