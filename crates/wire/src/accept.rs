//! What the caller would read, by its `Accept` header.

use http::{HeaderMap, header};

/// How a fault can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The service's own JSON.
    Json,
    /// A page, for browsers.
    Html,
    /// Lines.
    Plain,
}

/// How much the caller wants a media type: from 0, not at all, to 1. The most exact range counts;
/// without the header everything is welcome.
pub fn wish(headers: &HeaderMap, media: &str) -> f32 {
    let (kind, _) = media.split_once('/').unwrap_or((media, ""));
    let mut best: Option<(u8, f32)> = None;
    let mut said = false;
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in values.flat_map(|value| value.split(',')).map(str::trim) {
        if range.is_empty() {
            continue;
        }
        said = true;
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
        None if said => 0.0,
        None => 1.0,
    }
}

/// How a framework that offers a page, then JSON, and lines to everybody else tells a fault (webob's
/// own faults, which are Glance's): what the caller likes best, and of two equals the page. Without
/// the header, lines.
pub fn offered(headers: &HeaderMap) -> Form {
    if headers.get(header::ACCEPT).is_none_or(|value| value.as_bytes().trim_ascii().is_empty()) {
        return Form::Plain;
    }
    preferred(headers)
}

/// How Placement tells a fault to this caller: JSON when nothing or anything is asked for, else a
/// page where that is liked as much as JSON, else JSON where that is liked, else lines.
pub fn form(headers: &HeaderMap) -> Form {
    let first = headers.get(header::ACCEPT).map(|value| value.as_bytes().trim_ascii());
    if first.is_none_or(|text| text.is_empty() || text == b"*/*" || text == b"application/json") {
        return Form::Json;
    }
    preferred(headers)
}

fn preferred(headers: &HeaderMap) -> Form {
    let (page, json) = (wish(headers, "text/html"), wish(headers, "application/json"));
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
    fn the_most_exact_range_counts() {
        let browser = with("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");
        assert!((wish(&browser, "application/json") - 0.8).abs() < 0.001);
        assert!((wish(&browser, "text/html") - 1.0).abs() < 0.001);
        let but = with("application/json;q=0, application/*;q=0.5, */*");
        assert!(wish(&but, "application/json") < 0.001);
        assert!((wish(&but, "application/xml") - 0.5).abs() < 0.001);
        assert!((wish(&HeaderMap::new(), "application/json") - 1.0).abs() < 0.001);
        assert!(wish(&with("text/plain"), "application/json") < 0.001);
    }

    #[test]
    fn a_page_is_offered_first() {
        assert_eq!(offered(&HeaderMap::new()), Form::Plain);
        for (accept, wanted) in [
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
            assert_eq!(offered(&with(accept)), wanted, "{accept}");
        }
    }

    #[test]
    fn faults_are_told_as_the_caller_likes() {
        assert_eq!(form(&HeaderMap::new()), Form::Json);
        for (accept, wanted) in [
            ("*/*", Form::Json),
            ("", Form::Json),
            ("application/json", Form::Json),
            ("application/json, text/html;q=0.5", Form::Json),
            ("text/html", Form::Html),
            ("text/html, */*;q=0.8", Form::Html),
            ("text/plain", Form::Plain),
            ("image/png, text/*;q=0", Form::Plain),
        ] {
            assert_eq!(form(&with(accept)), wanted, "{accept}");
        }
    }
}
