//! Calls to the services of this process as a client makes them: through their HTTP APIs, with a user's token.
//!
//! From the service's router on, a request is handled like any other: token, policy, validation. It only
//! bypasses the socket.

use axum::Router;
use axum::body::{Body, Bytes};
use http::request::Parts;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use kilonova_wire::{Origin, PeerAddress};
use serde_json::Value;
use tower::ServiceExt;

use crate::error::Error;
use crate::texts;

/// Maximum length of a request's path and query. A browser's own request is no longer than that, but escaping
/// triples the length of some characters.
const MAX_PATH: usize = 65_534;
/// Maximum size of an answer, in bytes.
const MAX_ANSWER: usize = 16 * 1024 * 1024;
/// The microversions that pages are written for.
const VERSIONS: [(&str, &str); 3] = [
    ("/compute/", "compute 2.96"),
    ("/accelerator/", "accelerator 2.2"),
    ("/placement/", "placement 1.39"),
];

/// The header that requests a microversion.
const VERSION: &str = "openstack-api-version";
/// The header in which a client announces the size of an image.
const SIZE: &str = "x-openstack-image-size";
const JSON: &str = "application/json";

/// The routers of the services.
#[derive(Clone)]
pub(crate) struct Cloud(pub Router);

/// A caller and its connection, as the services see them.
#[derive(Clone, Default)]
pub(crate) struct Caller {
    token: Option<HeaderValue>,
    peer: Option<PeerAddress>,
    origin: Option<Origin>,
}

impl Caller {
    /// The caller of a request without a token.
    pub fn of(parts: &Parts) -> Self {
        Self {
            token: None,
            peer: parts.extensions.get().copied(),
            origin: parts.extensions.get().cloned(),
        }
    }

    /// The same caller with a token.
    pub fn with_token(mut self, token: &str) -> Self {
        self.token = HeaderValue::from_str(token).ok().map(|mut value| {
            value.set_sensitive(true);
            value
        });
        self
    }

    /// The same caller without a token, for a request with credentials in its body.
    pub fn without_token(&self) -> Self {
        Self { token: None, ..self.clone() }
    }

    /// True for a URL with the origin of the browser's request.
    pub fn is_own(&self, url: &str) -> bool {
        let own = self.origin.as_ref().and_then(|Origin(origin)| url.strip_prefix(&**origin));
        own.is_some_and(|rest| rest.starts_with('/'))
    }

    /// True if the browser's connection is encrypted, as far as the listener knows.
    pub fn is_encrypted(&self) -> bool {
        self.origin.as_ref().is_some_and(|Origin(origin)| origin.starts_with("https:"))
    }
}

/// An answer of a service.
pub(crate) struct Answer {
    /// The token that it issued.
    pub token: Option<String>,
    /// The body; null without one.
    pub body: Value,
}

impl Cloud {
    /// Sends a GET request.
    pub async fn get(&self, caller: &Caller, path: &str) -> Result<Value, Error> {
        Ok(self.send(caller, Method::GET, path, None).await?.body)
    }

    /// Sends a POST request.
    pub async fn post(&self, caller: &Caller, path: &str, body: Value) -> Result<Value, Error> {
        Ok(self.send(caller, Method::POST, path, Some(body)).await?.body)
    }

    /// Revokes a token.
    pub async fn revoke(&self, caller: &Caller, path: &str, token: &str) -> Result<(), Error> {
        let subject = HeaderValue::from_str(token);
        let subject = subject.map_err(|_| Error::Defect("a token is not a valid header".into()))?;
        let subject = Some(("x-subject-token", subject));
        self.request(caller, Method::DELETE, path, (JSON, Body::empty()), subject).await.map(drop)
    }

    /// Sends a DELETE request.
    pub async fn delete(&self, caller: &Caller, path: &str) -> Result<(), Error> {
        self.send(caller, Method::DELETE, path, None).await.map(drop)
    }

    /// Sends a POST request at another microversion, for a feature that newer ones have removed.
    pub async fn post_at(
        &self,
        caller: &Caller,
        path: &str,
        body: Value,
        version: &'static str,
    ) -> Result<Value, Error> {
        let version = Some((VERSION, HeaderValue::from_static(version)));
        let body = (JSON, Body::from(body.to_string()));
        Ok(self.request(caller, Method::POST, path, body, version).await?.body)
    }

    /// Streams data, and announces the size if it is known. The service reads data no faster than it stores it.
    pub async fn put_data(
        &self,
        caller: &Caller,
        path: &str,
        size: Option<u64>,
        data: Body,
    ) -> Result<(), Error> {
        let body = ("application/octet-stream", data);
        let size = size.map(|size| (SIZE, HeaderValue::from(size)));
        self.request(caller, Method::PUT, path, body, size).await.map(drop)
    }

    /// Sends a request to the service that the beginning of the path names.
    pub async fn send(
        &self,
        caller: &Caller,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Answer, Error> {
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        self.request(caller, method, path, (JSON, body), None).await
    }

    async fn request(
        &self,
        caller: &Caller,
        method: Method,
        path: &str,
        body: (&'static str, Body),
        more: Option<(&'static str, HeaderValue)>,
    ) -> Result<Answer, Error> {
        let (token, content) = self.exchange(caller, method, path, body, more).await?;
        Ok(Answer { token, body: serde_json::from_slice(&content).unwrap_or_default() })
    }

    /// Sends a request; returns the token and the body of a successful answer.
    async fn exchange(
        &self,
        caller: &Caller,
        method: Method,
        path: &str,
        (media, body): (&'static str, Body),
        more: Option<(&'static str, HeaderValue)>,
    ) -> Result<(Option<String>, Bytes), Error> {
        if path.len() > MAX_PATH {
            let message = texts::ADDRESS_TOO_LONG.to_owned();
            return Err(Error::Refused { status: 414, message, request: None, retry_after: None });
        }
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::ACCEPT, JSON)
            .header(header::CONTENT_TYPE, media);
        if let Some(token) = &caller.token {
            request = request.header("x-auth-token", token);
        }
        let usual = VERSIONS.iter().find(|(service, _)| path.starts_with(service));
        let usual = usual.filter(|_| more.as_ref().is_none_or(|(name, _)| *name != VERSION));
        if let Some((_, version)) = usual {
            request = request.header(VERSION, *version);
        }
        if let Some((name, value)) = more {
            request = request.header(name, value);
        }
        let mut request =
            request.body(body).map_err(|error| Error::Defect(format!("{path}: {error}")))?;
        if let Some(peer) = caller.peer {
            request.extensions_mut().insert(peer);
        }
        if let Some(origin) = &caller.origin {
            request.extensions_mut().insert(origin.clone());
        }
        let Ok(answer) = self.0.clone().oneshot(request).await;
        let (parts, body) = answer.into_parts();
        let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let content = Limited::new(body, MAX_ANSWER).collect().await;
        let content = content.map_err(|error| Error::Defect(format!("an answer: {error}")))?;
        let content = content.to_bytes();
        if parts.status.is_success() {
            return Ok((text("x-subject-token").map(str::to_owned), content));
        }
        let body: Value = serde_json::from_slice(&content).unwrap_or_default();
        if parts.status == StatusCode::UNAUTHORIZED && caller.token.is_some() {
            return Err(Error::NoSession);
        }
        Err(Error::Refused {
            status: parts.status.as_u16(),
            message: message(&body).unwrap_or_default(),
            request: text("x-openstack-request-id").map(str::to_owned),
            retry_after: text("retry-after").and_then(|seconds| seconds.parse().ok()),
        })
    }
}

/// The message of a fault: each service has a form of its own.
fn message(body: &Value) -> Option<String> {
    match body {
        Value::Object(fields) => {
            let direct = ["message", "detail", "faultstring"]
                .iter()
                .find_map(|key| fields.get(*key).and_then(Value::as_str));
            direct.map(str::to_owned).or_else(|| fields.values().find_map(message))
        }
        Value::Array(all) => all.iter().find_map(message),
        // Cyborg's fault is JSON within a string.
        Value::String(text) => message(&serde_json::from_str(text).ok()?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_message_of_every_dialect_is_found() {
        for body in [
            json!({"badRequest": {"code": 400, "message": "no"}}),
            json!({"error": {"code": 401, "message": "no", "title": "Unauthorized"}}),
            json!({"errors": [{"status": 400, "detail": "no"}]}),
            json!({"NeutronError": {"type": "X", "message": "no", "detail": ""}}),
            json!({"error_message": r#"{"faultcode": "Client", "faultstring": "no"}"#}),
            json!({"message": "no", "code": "404 Not Found"}),
        ] {
            assert_eq!(message(&body).as_deref(), Some("no"), "{body}");
        }
        assert_eq!(message(&Value::Null), None);
    }
}
