//! Content negotiation by the `Accept` header.

use http::{HeaderMap, header};

/// The format of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The service's own JSON.
    Json,
    /// An HTML page, for browsers.
    Html,
    /// Plain text.
    Plain,
}

/// The quality of a media type for the caller, from 0 (refused) to 1. The most specific range
/// decides; without the header all types have quality 1.
pub fn quality(headers: &HeaderMap, media: &str) -> f32 {
    let (kind, _) = media.split_once('/').unwrap_or((media, ""));
    let mut best: Option<(u8, f32)> = None;
    let mut has_ranges = false;
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in values.flat_map(|value| value.split(',')).map(str::trim) {
        if range.is_empty() {
            continue;
        }
        has_ranges = true;
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let exactness = match name.split_once('/') {
            _ if name.eq_ignore_ascii_case(media) => 2,
            Some((of, "*")) if of.eq_ignore_ascii_case(kind) => 1,
            Some(("*", "*")) => 0,
            _ => continue,
        };
        let quality = parts
            .find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")))
            .map_or(1.0, |text| text.parse().unwrap_or(0.0));
        if best.is_none_or(|(known, _)| exactness > known) {
            best = Some((exactness, quality));
        }
    }
    match best {
        Some((_, quality)) => quality,
        None if has_ranges => 0.0,
        None => 1.0,
    }
}

/// The format of webob's own faults, which Glance returns: HTML or JSON, whichever the caller
/// prefers (HTML if equal); plain text if it accepts neither, or if the header is absent or empty.
pub fn webob_form(headers: &HeaderMap) -> Form {
    if headers.get(header::ACCEPT).is_none_or(|value| value.as_bytes().trim_ascii().is_empty()) {
        return Form::Plain;
    }
    preferred(headers)
}

/// The format of Placement's faults: JSON if the header is absent, empty, `*/*` or `application/json`.
/// Otherwise HTML or JSON, whichever the caller prefers (HTML if equal); plain text if it accepts
/// neither.
pub fn placement_form(headers: &HeaderMap) -> Form {
    let first = headers.get(header::ACCEPT).map(|value| value.as_bytes().trim_ascii());
    if first.is_none_or(|text| text.is_empty() || text == b"*/*" || text == b"application/json") {
        return Form::Json;
    }
    preferred(headers)
}

fn preferred(headers: &HeaderMap) -> Form {
    let (page, json) = (quality(headers, "text/html"), quality(headers, "application/json"));
    match () {
        () if page > 0.0 && page >= json => Form::Html,
        () if json > 0.0 => Form::Json,
        () => Form::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(accept: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(header::ACCEPT, http::HeaderValue::from_static(accept))])
    }

    #[test]
    fn the_most_specific_range_decides() {
        let browser = with("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");
        assert!((quality(&browser, "application/json") - 0.8).abs() < 0.001);
        assert!((quality(&browser, "text/html") - 1.0).abs() < 0.001);
        let but = with("application/json;q=0, application/*;q=0.5, */*");
        assert!(quality(&but, "application/json") < 0.001);
        assert!((quality(&but, "application/xml") - 0.5).abs() < 0.001);
        assert!((quality(&HeaderMap::new(), "application/json") - 1.0).abs() < 0.001);
        assert!(quality(&with("text/plain"), "application/json") < 0.001);
    }

    #[test]
    fn html_is_preferred_if_equal() {
        assert_eq!(webob_form(&HeaderMap::new()), Form::Plain);
        for (accept, expected) in [
            ("", Form::Plain),
            ("*/*", Form::Html),
            ("application/json", Form::Json),
            ("application/*", Form::Json),
            ("application/json, */*", Form::Html),
            ("*/*;q=0.1, application/json", Form::Json),
            ("text/html;q=0, */*", Form::Json),
            ("text/plain", Form::Plain),
            ("image/png", Form::Plain),
        ] {
            assert_eq!(webob_form(&with(accept)), expected, "{accept}");
        }
    }

    #[test]
    fn faults_have_the_preferred_format() {
        assert_eq!(placement_form(&HeaderMap::new()), Form::Json);
        for (accept, expected) in [
            ("*/*", Form::Json),
            ("", Form::Json),
            ("application/json", Form::Json),
            ("application/json, text/html;q=0.5", Form::Json),
            ("text/html", Form::Html),
            ("text/html, */*;q=0.8", Form::Html),
            ("text/plain", Form::Plain),
            ("image/png, text/*;q=0", Form::Plain),
        ] {
            assert_eq!(placement_form(&with(accept)), expected, "{accept}");
        }
    }
}
