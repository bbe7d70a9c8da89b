//! Allocations of servers and of their migrations: clients of the Placement API cannot change them.
//! Those of others can be changed and deleted as ever.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::kit::{ADMIN, Cloud, GPU, Up, hosts};

async fn ask(up: &Up, method: &str, path: &str, body: Value) -> (u16, Value) {
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "cloud:1234")
        .header("x-auth-token", ADMIN)
        .header("content-type", "application/json")
        .header("openstack-api-version", "placement 1.36")
        .body(body)
        .expect("a request");
    let answer = up.placement().send(request).await;
    (answer.status.as_u16(), answer.body)
}

/// What a consumer holds, in the form of a request that writes the same again.
async fn held(up: &Up, consumer: &str) -> Value {
    let (_, mut body) = ask(up, "GET", &format!("/allocations/{consumer}"), Value::Null).await;
    for (_, one) in body["allocations"].as_object_mut().expect("allocations") {
        one.as_object_mut().expect("one").remove("generation");
    }
    body
}

/// Every way of the API to change what a consumer holds is refused, and changes nothing.
async fn is_kept(up: &Up, consumer: &str, says: &str) {
    let before = held(up, consumer).await;
    let mut nothing = before.clone();
    nothing["allocations"] = json!({});
    let path = format!("/allocations/{consumer}");
    for (method, path, body) in [
        ("DELETE", path.as_str(), Value::Null),
        ("PUT", path.as_str(), nothing.clone()),
        ("PUT", path.as_str(), before.clone()),
        ("POST", "/allocations", json!({consumer: nothing})),
    ] {
        let (status, body) = ask(up, method, path, body).await;
        assert_eq!(status, 409, "{method} {path}: {body}");
        let detail = body["errors"][0]["detail"].as_str().expect("a detail");
        assert!(detail.contains(says), "{detail}");
        assert!(detail.contains("Compute API"), "{detail}");
    }
    assert_eq!(held(up, consumer).await, before);
}

#[tokio::test]
async fn what_a_server_holds_changes_with_the_server_alone() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[GPU])])).await {
        let id = up.active(&cloud, "one", "vgpu").await;
        is_kept(&up, &id, "is a server of this cloud").await;
        cloud.sound(&up, "after refused changes").await;
        let other = uuid::Uuid::new_v4().to_string();
        let mut theirs = held(&up, &id).await;
        theirs["consumer_generation"] = Value::Null;
        let path = format!("/allocations/{other}");
        assert_eq!(ask(&up, "PUT", &path, theirs).await.0, 204, "a consumer of somebody else");
        assert_eq!(ask(&up, "DELETE", &path, Value::Null).await.0, 204);
        up.delete(&id).await;
        up.goes(&id).await;
        cloud.empty(&up, "deleted").await;
        let path = format!("/allocations/{id}");
        assert_eq!(ask(&up, "DELETE", &path, Value::Null).await.0, 404);
    }
}
