//! Answers: pages, and refusals as pages.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use kilonova_access::Enforcer;
use maud::Markup;

use crate::error::Error;
use crate::{texts, views};

/// Seconds after which a page may be requested again if too many were open.
const CROWDED: u64 = 10;

/// A page, or a part of one.
pub(super) struct Html(pub Markup);

impl IntoResponse for Html {
    fn into_response(self) -> Response {
        let media = HeaderValue::from_static("text/html; charset=utf-8");
        ([(header::CONTENT_TYPE, media)], self.0.into_string()).into_response()
    }
}

/// A refusal as a page of its own.
#[derive(Debug)]
pub(super) struct Refusal(pub Error);

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, title, text) = status_and_text(&self.0);
        let (request, retry_after) = match &self.0 {
            Error::Refused { request, retry_after, .. } => (request.as_deref(), *retry_after),
            Error::Crowded => (None, Some(CROWDED)),
            _ => (None, None),
        };
        // A service's refusal has the id of the request to the service.
        let own = super::request_id().filter(|_| status.is_server_error());
        let request = request.or(own.as_deref());
        match &self.0 {
            Error::Defect(why) => tracing::error!("the dashboard cannot show a page: {why}"),
            error => tracing::debug!(%error, "a page is refused"),
        }
        // For a logged-in user, the page of a refusal has links to the other pages, to the projects and to
        // the logout.
        let session = match &self.0 {
            Error::NoSession => None,
            _ => super::session(),
        };
        let page = views::error::page(title, &text, request, session.as_ref());
        let mut response = (status, Html(page)).into_response();
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// The status and the message of a service that refuses a form's request, to be shown above the form.
///
/// # Errors
/// Any other refusal, which has a page of its own.
pub(super) fn refusal_for_form(error: Error) -> Result<(StatusCode, String), Refusal> {
    match error {
        Error::Refused { status: status @ (400 | 402 | 403 | 405..500), message, .. } => {
            let code = StatusCode::from_u16(status).unwrap_or(StatusCode::CONFLICT);
            let message = if message.is_empty() { texts::REFUSED.to_owned() } else { message };
            Ok((code, message))
        }
        other => Err(Refusal(other)),
    }
}

/// The refusal by a policy rule, in the words of the service.
pub(super) fn forbidden(policy: &Enforcer, rule: &str) -> Refusal {
    let message = policy.refusal(rule).message;
    Refusal(Error::Refused { status: 403, message, request: None, retry_after: None })
}

/// The status, the title and the text of a refusal.
pub(super) fn status_and_text(error: &Error) -> (StatusCode, &'static str, String) {
    match error {
        Error::NoSession => {
            (StatusCode::UNAUTHORIZED, texts::SESSION_ENDED, texts::LOG_IN_AGAIN.to_owned())
        }
        Error::Forged => (StatusCode::FORBIDDEN, texts::FORBIDDEN, texts::FORGED_TEXT.to_owned()),
        Error::Changed => {
            (StatusCode::FORBIDDEN, texts::FORBIDDEN, texts::ROLES_CHANGED.to_owned())
        }
        Error::Unreadable(why) => (StatusCode::BAD_REQUEST, texts::UNREADABLE, (*why).to_owned()),
        Error::NoPage => {
            (StatusCode::NOT_FOUND, texts::NOT_FOUND, texts::NOT_FOUND_TEXT.to_owned())
        }
        Error::Defect(_) => {
            (StatusCode::INTERNAL_SERVER_ERROR, texts::BROKEN, texts::BROKEN_TEXT.to_owned())
        }
        Error::Crowded => {
            (StatusCode::SERVICE_UNAVAILABLE, texts::UNAVAILABLE, texts::CROWDED_TEXT.to_owned())
        }
        Error::Refused { status, message, .. } => {
            let code = StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_GATEWAY);
            let or = |usual: &str| match message.is_empty() {
                true => usual.to_owned(),
                false => message.clone(),
            };
            match *status {
                404 => (code, texts::NOT_FOUND, texts::NOT_FOUND_TEXT.to_owned()),
                403 => (code, texts::FORBIDDEN, or(texts::FORBIDDEN)),
                503 => (code, texts::UNAVAILABLE, texts::UNAVAILABLE_TEXT.to_owned()),
                500.. => (code, texts::BROKEN, texts::BROKEN_TEXT.to_owned()),
                _ => (code, texts::REFUSED, or(texts::REFUSED)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_too_many_is_refused_for_a_while() {
        let answer = Refusal(Error::Crowded).into_response();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.headers()[header::RETRY_AFTER], "10");
    }
}
