//! The forms that browsers send: bounded, readable, and of the session that sends them.

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use http::header;
use http_body_util::{BodyExt, Limited};
use kilonova_wire::query::Query;

use super::answers::Refusal;
use super::viewer::{Viewer, to_login};
use crate::app::Dashboard;
use crate::app::session::equal;
use crate::error::Error;

/// The largest form: user data of 48 KiB, each byte of which may take three.
const LARGEST: usize = 192 * 1024;
/// The field that joins a form to its session.
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
        let content = Limited::new(body, LARGEST).collect().await;
        let content = content.map_err(|_| Error::Unreadable("It is too large."))?.to_bytes();
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
