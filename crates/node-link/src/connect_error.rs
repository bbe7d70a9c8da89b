//! Explains connection errors, with a remedy for certificates and clocks.

/// The complete error chain, because the outermost error states only that a request failed, and a
/// remedy if one is known.
pub(super) fn explain(error: &dyn std::error::Error) -> String {
    let mut text = chain(error);
    if let Some(remedy) = remedy(&text) {
        text.push_str("; ");
        text.push_str(remedy);
    }
    text
}

/// True if no part of the request was sent and the reason is unknown.
pub(super) fn is_unsent(error: &dyn std::error::Error) -> bool {
    chain(error).ends_with("connection was not ready")
}

/// True if no part of the request was sent and another attempt may succeed: there was no connection, or
/// it ended. An error of TLS is a judgement about the peer, which another attempt does not change.
pub(super) fn is_unreached(error: &reqwest::Error) -> bool {
    is_unsent(error) || (error.is_connect() && !is_of_tls(error))
}

/// True if an error of the chain is one of TLS. The library wraps it in an I/O error, which hides it
/// from the chain.
fn is_of_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        let wrapped = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if cause.is::<rustls::Error>() || wrapped.is_some_and(|inner| is_of_tls(inner)) {
            return true;
        }
        next = cause.source();
    }
    false
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

/// An alert is the peer's judgement of this host; "invalid" is this host's judgement of the peer.
fn remedy(text: &str) -> Option<&'static str> {
    let says = |word: &str| text.contains(&format!("alert: {word}"));
    if says("CertificateExpired") {
        return Some(
            "the controller considers the certificate of this host expired: compare the clocks, \
             or create a token with `kilonova node enroll` and join again",
        );
    }
    if says("UnknownCA") || says("BadCertificate") || says("DecryptError") {
        return Some(
            "the certificate of this host is not from the controller's authority: check the URL, \
             or create a token with `kilonova node enroll` and join again",
        );
    }
    // The first bytes of an answer are not those of TLS.
    if text.contains("received corrupt message of type InvalidContentType") {
        return Some(
            "the server does not speak TLS here, so this is not the port for hosts, but perhaps that of the \
             API: hosts join at the URL that `kilonova node list` prints",
        );
    }
    if !text.contains("invalid peer certificate") {
        return None;
    }
    if text.contains("expired") || text.contains("not valid yet") {
        return Some(
            "the certificate of the controller is not valid at this time: compare the clocks",
        );
    }
    Some("the server is not the controller that this host joined: check the URL")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_errors_have_a_remedy() {
        for (text, words) in [
            ("sending: received fatal alert: CertificateExpired", "compare the clocks, or"),
            ("sending: received fatal alert: UnknownCA", "join again"),
            ("x: invalid peer certificate: UnknownIssuer", "check the URL"),
            ("x: received corrupt message of type InvalidContentType", "`kilonova node list`"),
            ("x: invalid peer certificate: certificate not valid yet: …", "compare the clocks"),
        ] {
            let message = explain(&std::io::Error::other(text));
            assert!(message.starts_with(text) && message.contains(words), "{message}");
        }
        assert_eq!(explain(&std::io::Error::other("connection refused")), "connection refused");
        for (text, unsent) in
            [("client error (Canceled): connection was not ready", true), ("refused", false)]
        {
            assert_eq!(is_unsent(&std::io::Error::other(text)), unsent, "{text}");
        }
    }

    #[test]
    fn errors_of_tls_are_recognized_below_errors_of_the_connection() {
        let wrapped = |error: std::io::Error| std::io::Error::other(error);
        let tls = std::io::Error::other(rustls::Error::General("another authority".into()));
        assert!(is_of_tls(&tls) && is_of_tls(&wrapped(wrapped(tls))));
        let closed = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        assert!(!is_of_tls(&wrapped(closed)));
    }
}
