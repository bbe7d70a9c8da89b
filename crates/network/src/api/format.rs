//! Paths with the suffix `.json`, which clients sent before OpenStack's SDK 0.55. As in Neutron (pecan's
//! `guess_content_type_from_ext`), they reach the same operations as paths without it.

use axum::Router;
use axum::http::Uri;

const SUFFIX: &str = ".json";

/// Wraps `mounted` so that it also answers paths with the suffix.
pub fn reached_with_suffix(mounted: Router) -> Router {
    kilonova_wire::rewritten(mounted, without_suffix)
}

/// The path without the suffix; `None` if it has none.
fn without_suffix(uri: &Uri) -> Option<Uri> {
    let path = uri.path().trim_end_matches('/').strip_suffix(SUFFIX)?;
    match uri.query() {
        Some(query) => format!("{path}?{query}").parse().ok(),
        None => path.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suffix_is_taken_off_the_path() {
        let of = |path: &str| {
            without_suffix(&path.parse().expect("the path is valid")).map(|uri| uri.to_string())
        };
        assert_eq!(of("/v2.0/networks.json").as_deref(), Some("/v2.0/networks"));
        assert_eq!(
            of("/v2.0/ports/1.json?name=a.json").as_deref(),
            Some("/v2.0/ports/1?name=a.json")
        );
        for path in ["/v2.0/networks", "/v2.0/networks?name=a.json", "/v2.0/networks/json"] {
            assert_eq!(of(path), None, "{path}");
        }
    }
}
