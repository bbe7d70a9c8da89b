//! Why nobody answers, with what to do about it where the reason is a certificate or a clock.

/// The whole chain, since the outermost sentence alone says only that a request failed; then a remedy.
pub(super) fn told(error: &dyn std::error::Error) -> String {
    let mut text = chain(error);
    if let Some(remedy) = remedy(&text) {
        text.push_str("; ");
        text.push_str(remedy);
    }
    text
}

/// Whether nothing of the request was sent, and nothing is said of why.
pub(super) fn is_unsent(error: &dyn std::error::Error) -> bool {
    chain(error).ends_with("connection was not ready")
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

/// Alerts are what the other side says; what is invalid is what we say of the other side.
fn remedy(text: &str) -> Option<&'static str> {
    let says = |word: &str| text.contains(&format!("alert: {word}"));
    if says("CertificateExpired") {
        return Some(
            "the control plane takes the certificate of this host for expired: compare the clocks, \
             or have a token made by `kilonova node enroll` and join again",
        );
    }
    if says("UnknownCA") || says("BadCertificate") || says("DecryptError") {
        return Some(
            "the certificate of this host is not of the control plane's authority: check the URL, \
             or have a token made by `kilonova node enroll` and join again",
        );
    }
    if !text.contains("invalid peer certificate") {
        return None;
    }
    if text.contains("expired") || text.contains("not valid yet") {
        return Some("the certificate of the control plane is not valid now: compare the clocks");
    }
    Some("who answers there is not the control plane that this host joined: check the URL")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_certificates_has_a_remedy() {
        for (text, words) in [
            ("sending: received fatal alert: CertificateExpired", "compare the clocks, or"),
            ("sending: received fatal alert: UnknownCA", "join again"),
            ("x: invalid peer certificate: UnknownIssuer", "check the URL"),
            ("x: invalid peer certificate: certificate not valid yet: …", "compare the clocks"),
        ] {
            let said = told(&std::io::Error::other(text));
            assert!(said.starts_with(text) && said.contains(words), "{said}");
        }
        assert_eq!(told(&std::io::Error::other("connection refused")), "connection refused");
        for (text, unsent) in
            [("client error (Canceled): connection was not ready", true), ("refused", false)]
        {
            assert_eq!(is_unsent(&std::io::Error::other(text)), unsent, "{text}");
        }
    }
}
