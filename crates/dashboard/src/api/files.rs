//! The files that pages load. They need no session, and contain no data about the cloud.

use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderMap, HeaderValue, header};

use super::answers::Refusal;
use crate::app::Dashboard;
use crate::assets;
use crate::error::Error;

pub(super) fn routes() -> Router<Dashboard> {
    Router::new().route("/assets/{name}", get(show))
}

async fn show(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, Refusal> {
    let asset = assets::find(&name).ok_or(Error::NoPage)?;
    let accepts = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let common = [
        (header::CONTENT_TYPE, HeaderValue::from_static(asset.media)),
        // The name changes with the content.
        (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable")),
        (header::VARY, HeaderValue::from_static("Accept-Encoding")),
    ];
    if accepts.is_some_and(accepts_gzip) {
        let encoding = [(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))];
        return Ok((common, encoding, asset.packed).into_response());
    }
    let content = asset.unpacked().map_err(|error| Error::Defect(error.to_string()))?;
    Ok((common, content).into_response())
}

/// True if the client accepts gzip. An entry for gzip precedes one for `*`.
fn accepts_gzip(accepts: &str) -> bool {
    let accepted = |coding: &str| {
        accepts.split(',').find_map(|one| {
            let mut parts = one.split(';').map(str::trim);
            (parts.next() == Some(coding))
                .then(|| !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000")))
        })
    };
    accepted("gzip").or_else(|| accepted("*")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::accepts_gzip;

    #[test]
    fn gzip_is_sent_only_to_those_who_read_it() {
        assert!(accepts_gzip("gzip, deflate, br") && accepts_gzip("br;q=1, *;q=0.1"));
        assert!(!accepts_gzip("identity") && !accepts_gzip("gzip;q=0, br") && !accepts_gzip(""));
        assert!(!accepts_gzip("gzip;q=0, *") && !accepts_gzip("*, gzip; q=0.0"));
        assert!(accepts_gzip("*;q=0, gzip") && !accepts_gzip("*;q=0"));
    }
}
