//! One request of one caller.

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::Value;

/// The caller.
#[derive(Debug, Clone)]
pub struct Caller {
    pub role: String,
    pub user: String,
    pub project: String,
}

/// The response.
pub struct Answer {
    pub status: u16,
    pub text: String,
}

/// Sends the request as the caller, or without authentication.
pub async fn ask(
    router: &Router,
    method: &Method,
    path: &str,
    caller: Option<&Caller>,
    body: &Value,
) -> Answer {
    let kind = match (method, path) {
        (&Method::PUT, path) if path.ends_with("/file") => "application/octet-stream",
        (&Method::PATCH, path) if path.starts_with("/v2/images/") => {
            "application/openstack-images-v2.1-json-patch"
        }
        _ => "application/json",
    };
    let mut headers = Vec::new();
    if let Some(Caller { role, user, project }) = caller {
        let token = format!("{user}:{project}");
        headers = vec![
            ("x-auth-token", token),
            ("x-user-id", user.clone()),
            ("x-project-id", project.clone()),
            ("x-roles", role.clone()),
        ];
    }
    let newer = *method == Method::GET || path.contains("/tags");
    if newer && path.starts_with("/v2.1/servers/") {
        headers.push(("openstack-api-version", "compute 2.97".to_owned()));
    }
    headers.push(("content-type", kind.to_owned()));
    send(router, method, path, &headers, body).await
}

/// Sends the request with these headers.
pub async fn send(
    router: &Router,
    method: &Method,
    path: &str,
    headers: &[(&str, String)],
    body: &Value,
) -> Answer {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "cloud:8774")
        .header("accept", "application/json");
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let bare = *method == Method::GET || *method == Method::DELETE;
    let body = if bare { Body::empty() } else { Body::from(body.to_string()) };
    let request = request.body(body).expect("the request is valid");
    let answer = kilonova_testkit::http::send(router, request).await;
    let text = String::from_utf8_lossy(&answer.bytes).into_owned();
    Answer { status: answer.status.as_u16(), text }
}
