//! Calls a service in process, as a client would.

use axum::Router;
use axum::body::Body;
use axum::http::Request;
pub use kilonova_testkit::http::Answer;
use serde_json::Value;

/// An admin, and two users of two projects.
pub const ADMIN: &str = "admin";
pub const ANN: &str = "ann:red";
pub const BOB: &str = "bob:blue";

#[derive(Clone)]
pub struct Client {
    pub router: Router,
}

impl Client {
    pub async fn send(&self, request: Request<Body>) -> Answer {
        let answer = kilonova_testkit::http::send(&self.router, request).await;
        assert!(answer.bytes.is_empty() || !answer.body.is_null(), "the body is JSON");
        answer
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
        let (method, path) = what.split_once(' ').expect("the call is a method and a path");
        let request = Request::builder()
            .method(method)
            .uri(format!("/v2.1{path}"))
            .header("host", "cloud:1234")
            .header("x-auth-token", token)
            .header("openstack-api-version", format!("compute {version}"))
            .body(body)
            .expect("the request is valid");
        self.send(request).await
    }

    pub async fn get(&self, token: &str, version: &str, path: &str) -> Answer {
        self.call(token, version, &format!("GET {path}"), None).await
    }

    pub async fn admin(&self, version: &str, what: &str, body: Value) -> Answer {
        self.call(ADMIN, version, what, Some(body)).await
    }

    /// A small flavor; `more` adds or replaces keys of the request.
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
