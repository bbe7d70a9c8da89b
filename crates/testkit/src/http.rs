//! A client of a service in the same process: requests in one line, and complete answers.
//!
//! Headers that identify the caller differ between services and belong to each service's own tests.
//! This file must never know a service's paths.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tower::ServiceExt as _;

/// A complete answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as sent.
    pub bytes: Vec<u8>,
    /// The body as JSON; `Null` when it is empty or not JSON.
    pub body: Value,
}

impl Answer {
    /// The body.
    ///
    /// # Panics
    /// When the answer has another status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        self.is(status).body
    }

    /// The answer itself.
    ///
    /// # Panics
    /// When it has another status.
    #[track_caller]
    pub fn is(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", String::from_utf8_lossy(&self.bytes));
        self
    }

    /// The message of a fault in Nova's form, `{"badRequest": {"message": …}}`.
    pub fn message(&self) -> &str {
        let fault = self.body.as_object().and_then(|body| body.values().next());
        fault.and_then(|fault| fault["message"].as_str()).unwrap_or_default()
    }

    /// The detail of a fault in Placement's form, `{"errors": [{"detail": …}]}`.
    pub fn detail(&self) -> &str {
        self.body["errors"][0]["detail"].as_str().unwrap_or_default()
    }

    /// The code of a fault in Placement's form.
    pub fn code(&self) -> &str {
        self.body["errors"][0]["code"].as_str().unwrap_or_default()
    }

    /// The message of a fault in Cyborg's form: an `error_message` that holds JSON or HTML.
    ///
    /// # Panics
    /// When the body is not such a fault.
    #[track_caller]
    pub fn fault(&self) -> String {
        let text = self.body["error_message"].as_str().expect("the body has an error_message");
        match serde_json::from_str::<Value>(text) {
            Ok(inner) => {
                inner["faultstring"].as_str().expect("the fault has a faultstring").to_owned()
            }
            Err(_) => text
                .split("\n\n")
                .nth(1)
                .expect("the text has a second paragraph")
                .trim()
                .to_owned(),
        }
    }

    /// Checks a refusal in Nova's form: its status, and that its message contains `part`.
    ///
    /// # Panics
    /// When either differs.
    #[track_caller]
    pub fn refused(self, status: u16, part: &str) {
        let answer = self.is(status);
        let message = answer.message();
        assert!(message.contains(part), "{message:?} does not contain {part:?}");
    }
}

/// A request such as `GET /servers`, with these headers and a JSON body if there is one.
///
/// # Panics
/// When `what` is not a method and a path, or a header is malformed.
#[track_caller]
pub fn request(what: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Request<Body> {
    let (method, path) = what.split_once(' ').expect("the call has a method and a path");
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    request.body(body).expect("the request is well formed")
}

/// Sends a request and reads the complete answer.
///
/// # Panics
/// When the body of the answer is cut off.
pub async fn send(router: &Router, request: Request<Body>) -> Answer {
    let response = router.clone().oneshot(request).await.unwrap_or_else(|never| match never {});
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("the body is complete").to_bytes().to_vec();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    Answer { status: parts.status, headers: parts.headers, bytes, body }
}
