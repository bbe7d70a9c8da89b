//! Reads the forms that browsers send. A form has a maximum size, must be readable, and must belong
//! to the session that sends it.

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use http::header;
use kilonova_wire::query::Query;
use kilonova_wire::read_body;
use kilonova_wire::refusal::Kind;

use super::answers::Refusal;
use super::viewer::{Viewer, to_login};
use crate::app::Dashboard;
use crate::app::session::equal;
use crate::error::Error;

/// Maximum size of a form. User data has at most 48 KiB, and each of its bytes may be encoded as
/// three.
const MAX_FORM: usize = 192 * 1024;
/// The field that ties a form to its session.
pub(super) const CSRF: &str = "csrf";

/// The fields of a form.
pub(super) struct Fields(pub Query);

impl Fields {
    /// A field without spaces around it; `None` if it is empty or missing.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(str::trim).filter(|text| !text.is_empty())
    }

    /// A field as it was typed.
    pub(super) fn raw(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or_default()
    }

    pub(super) async fn read(headers: &http::HeaderMap, body: Body) -> Result<Self, Error> {
        let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media = media.and_then(|media| media.split(';').next()).map(str::trim);
        if media != Some("application/x-www-form-urlencoded") {
            return Err(Error::Unreadable("It is not a form."));
        }
        let content = read_body(body, MAX_FORM).await.map_err(|refusal| {
            Error::Unreadable(match refusal.kind {
                Kind::TooLarge => "It is too large.",
                Kind::Timeout => "It did not arrive in time.",
                _ => "It is not complete.",
            })
        })?;
        let text = str::from_utf8(&content).map_err(|_| Error::Unreadable("It is not text."))?;
        Ok(Self(Query::parse(text)))
    }
}

/// A form with the user who sent it.
pub(super) struct Form {
    /// The user.
    pub viewer: Viewer,
    /// The fields.
    pub fields: Fields,
}

impl FromRequest<Dashboard> for Form {
    type Rejection = Response;

    async fn from_request(request: Request, state: &Dashboard) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let refuse = |error| Refusal(error).into_response();
        let viewer = Viewer::of(&parts, state).await.map_err(refuse)?;
        let Some(viewer) = viewer else { return Err(to_login(&parts)) };
        let fields = Fields::read(&parts.headers, body).await.map_err(refuse)?;
        if !equal(fields.raw(CSRF).as_bytes(), viewer.session.csrf.as_bytes()) {
            return Err(refuse(Error::Forged));
        }
        Ok(Self { viewer, fields })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use axum::body::Bytes;
    use futures_util::{StreamExt, stream};
    use http::{HeaderMap, HeaderValue};

    use super::*;

    #[tokio::test]
    async fn a_form_that_never_ends_is_given_up() {
        let media = HeaderValue::from_static("application/x-www-form-urlencoded");
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, media)]);
        let start = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"csrf="))]);
        let endless = Body::from_stream(start.chain(stream::pending()));
        let read = Fields::read(&headers, endless);
        let read = tokio::time::timeout(Duration::from_secs(30), read).await;
        let refused = read.expect("it ends").err();
        assert!(
            matches!(refused, Some(Error::Unreadable("It did not arrive in time."))),
            "{refused:?}"
        );
    }
}
