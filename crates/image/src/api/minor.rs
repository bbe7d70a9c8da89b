//! Paths that name a minor version (`/v2.0/images`). As in Glance (`glance/api/middleware/version_negotiation.py`), they
//! reach the same operations as `/v2`.

use axum::Router;
use axum::http::Uri;

use super::versions::NEWEST;

/// Wraps `mounted` so that it also answers paths with a minor version.
pub fn reached_by_minor_version(mounted: Router) -> Router {
    kilonova_wire::rewritten(mounted, without_minor)
}

/// The path without the minor version; `None` if it names none that exists.
fn without_minor(uri: &Uri) -> Option<Uri> {
    let whole = uri.path_and_query()?.as_str().strip_prefix("/v2.")?;
    let end = whole.find(['/', '?']).unwrap_or(whole.len());
    let (minor, rest) = whole.split_at(end);
    let exists = (0..=NEWEST).any(|number| number.to_string() == minor);
    exists.then(|| format!("/v2{rest}").parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minor_version_is_taken_out_of_the_path() {
        let of = |path: &str| {
            without_minor(&path.parse().expect("the path is valid")).map(|uri| uri.to_string())
        };
        assert_eq!(of("/v2.0/images?limit=1").as_deref(), Some("/v2/images?limit=1"));
        assert_eq!(of("/v2.9").as_deref(), Some("/v2"));
        for path in ["/v2/images", "/v2.10/images", "/v2.+1/images", "/v2.x/images", "/versions"] {
            assert_eq!(of(path), None, "{path}");
        }
    }
}
