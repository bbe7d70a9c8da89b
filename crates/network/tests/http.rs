//! The network service over HTTP, in process.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use kilonova_network::{routes, service};
use kilonova_wire::noauth::NoAuth;
use serde_json::{Value, json};
use tower::ServiceExt as _;

async fn call(method: &str, path: &str, token: Option<&str>) -> (u16, Value) {
    let service = kilonova_wire::mount(routes(), service(), "/network", Arc::new(NoAuth));
    let router = Router::new().nest("/network", service);
    let mut request = Request::builder().method(method).uri(format!("/network{path}"));
    if let Some(token) = token {
        request = request.header("x-auth-token", token);
    }
    let response = router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

#[tokio::test]
async fn the_version_documents_need_no_token_and_the_rest_does() {
    let (status, body) = call("GET", "", None).await;
    assert_eq!(status, 200);
    assert_eq!(body["versions"][0]["links"][0]["href"], "http://localhost/network/v2.0/");
    assert_eq!(call("GET", "/v2.0", None).await.0, 200);
    for path in ["/v2.0/networks", "/v2.0/networks/x", "/v2.0/quotas/p", "/v2.0/nothing"] {
        assert_eq!(call("GET", path, None).await.0, 401, "{path}");
    }
}

#[tokio::test]
async fn collections_are_empty_and_their_members_not_found() {
    for name in ["networks", "ports", "subnets", "security-groups", "extensions", "agents"] {
        let (status, body) = call("GET", &format!("/v2.0/{name}?name=x"), Some("u:p")).await;
        assert_eq!((status, body), (200, json!({name.replace('-', "_"): []})));
        let (status, body) = call("GET", &format!("/v2.0/{name}/a%20b"), Some("u:p")).await;
        assert_eq!(status, 404);
        assert!(body["NeutronError"]["message"].as_str().unwrap().contains("a b"));
    }
    assert_eq!(call("GET", "/v2.0/nothing", Some("u:p")).await.0, 404);
}

#[tokio::test]
async fn making_something_is_refused_with_advice() {
    for path in ["/v2.0/networks", "/v2.0/ports", "/v2.0/security-groups"] {
        let (status, body) = call("POST", path, Some("admin")).await;
        assert_eq!(status, 501);
        assert!(body["NeutronError"]["message"].as_str().unwrap().contains("--nic none"));
    }
    assert_eq!(call("DELETE", "/v2.0/networks/x", Some("admin")).await.0, 404);
    assert_eq!(call("PUT", "/v2.0/quotas/p", Some("admin")).await.0, 501);
}

#[tokio::test]
async fn quotas_are_without_limit_and_of_the_own_project() {
    for path in ["/v2.0/quotas/p", "/v2.0/quotas/p/default"] {
        assert_eq!(call("GET", path, Some("u:p")).await.1["quota"]["network"], -1);
    }
    let (_, body) = call("GET", "/v2.0/quotas/p/details", Some("u:p")).await;
    assert_eq!(body["quota"]["port"], json!({"limit": -1, "used": 0, "reserved": 0}));
    assert_eq!(call("GET", "/v2.0/quotas/other", Some("u:p")).await.0, 403);
    assert_eq!(call("GET", "/v2.0/quotas/other", Some("admin")).await.0, 200);
    assert_eq!(call("GET", "/v2.0/quotas", Some("admin")).await.1, json!({"quotas": []}));
}
