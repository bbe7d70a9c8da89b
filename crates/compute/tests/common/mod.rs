//! Calls a service in process, as a client would.

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

/// An admin, and two users of two projects.
pub const ADMIN: &str = "admin";
pub const ANN: &str = "ann:red";
pub const BOB: &str = "bob:blue";

#[derive(Clone)]
pub struct Client {
    pub router: Router,
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Answer {
    /// The message of a fault.
    pub fn message(&self) -> &str {
        let fault = self.body.as_object().and_then(|body| body.values().next());
        fault.and_then(|fault| fault["message"].as_str()).unwrap_or_default()
    }

    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        self.body
    }

    /// Checks a refusal and that its message says what is wrong.
    pub fn refused(self, status: u16, part: &str) {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        assert!(self.message().contains(part), "{:?} does not say {part:?}", self.message());
    }
}

impl Client {
    pub async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.expect("infallible");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        let body = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes).expect("JSON")
        };
        Answer { status: parts.status, headers: parts.headers, body }
    }

    /// `call(ANN, "2.61", "GET /flavors", None)`; paths are below `/v2.1`.
    pub async fn call(
        &self,
        token: &str,
        version: &str,
        what: &str,
        body: Option<Value>,
    ) -> Answer {
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        self.raw(token, version, what, body).await
    }

    /// [`Client::call`] with any bytes as the body.
    pub async fn raw(&self, token: &str, version: &str, what: &str, body: Body) -> Answer {
        let (method, path) = what.split_once(' ').expect("a method and a path");
        let request = Request::builder()
            .method(method)
            .uri(format!("/v2.1{path}"))
            .header("host", "cloud:1234")
            .header("x-auth-token", token)
            .header("openstack-api-version", format!("compute {version}"))
            .body(body)
            .expect("a request");
        self.send(request).await
    }

    pub async fn get(&self, token: &str, version: &str, path: &str) -> Answer {
        self.call(token, version, &format!("GET {path}"), None).await
    }

    pub async fn admin(&self, version: &str, what: &str, body: Value) -> Answer {
        self.call(ADMIN, version, what, Some(body)).await
    }

    /// A small flavor; `more` adds to the request or replaces what is in it.
    pub async fn flavor(&self, id: &str, more: Value) -> Value {
        let mut flavor =
            serde_json::json!({"id": id, "name": id, "ram": 64, "vcpus": 1, "disk": 1});
        if let (Some(flavor), Value::Object(more)) = (flavor.as_object_mut(), more) {
            flavor.extend(more);
        }
        let body = serde_json::json!({"flavor": flavor});
        self.admin("2.61", "POST /flavors", body).await.expect(200)
    }
}
