//! Clients of the Placement API cannot change the allocations of servers and their migrations. They
//! can change those of other consumers.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::kit::{ADMIN, Cloud, GPU, RunningCloud, hosts};

async fn call_placement(
    running: &RunningCloud,
    method: &str,
    path: &str,
    body: Value,
) -> (u16, Value) {
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "cloud:1234")
        .header("x-auth-token", ADMIN)
        .header("content-type", "application/json")
        .header("openstack-api-version", "placement 1.36")
        .body(body)
        .expect("the request is valid");
    let answer = running.placement().send(request).await;
    (answer.status.as_u16(), answer.body)
}

/// The allocations of a consumer, in the form of a request that writes them unchanged.
async fn allocations_of(running: &RunningCloud, consumer: &str) -> Value {
    let (_, mut body) =
        call_placement(running, "GET", &format!("/allocations/{consumer}"), Value::Null).await;
    for (_, one) in body["allocations"].as_object_mut().expect("the answer has allocations") {
        one.as_object_mut().expect("the entry exists").remove("generation");
    }
    body
}

/// Checks that every call that would change a consumer's allocations is refused without effect.
async fn assert_unchangeable(running: &RunningCloud, consumer: &str, says: &str) {
    let before = allocations_of(running, consumer).await;
    let mut nothing = before.clone();
    nothing["allocations"] = json!({});
    let path = format!("/allocations/{consumer}");
    for (method, path, body) in [
        ("DELETE", path.as_str(), Value::Null),
        ("PUT", path.as_str(), nothing.clone()),
        ("PUT", path.as_str(), before.clone()),
        ("POST", "/allocations", json!({consumer: nothing})),
    ] {
        let (status, body) = call_placement(running, method, path, body).await;
        assert_eq!(status, 409, "{method} {path}: {body}");
        let detail = body["errors"][0]["detail"].as_str().expect("the error has a detail");
        assert!(detail.contains(says), "{detail}");
        assert!(detail.contains("Compute API"), "{detail}");
    }
    assert_eq!(allocations_of(running, consumer).await, before);
}

#[tokio::test]
async fn clients_cannot_change_the_allocations_of_servers() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        assert_unchangeable(&running, &id, "is a server of this cloud").await;
        cloud.assert_consistent(&running, "after refused changes").await;
        let other = uuid::Uuid::new_v4().to_string();
        let mut theirs = allocations_of(&running, &id).await;
        theirs["consumer_generation"] = Value::Null;
        let path = format!("/allocations/{other}");
        assert_eq!(
            call_placement(&running, "PUT", &path, theirs).await.0,
            204,
            "a foreign consumer"
        );
        assert_eq!(call_placement(&running, "DELETE", &path, Value::Null).await.0, 204);
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.assert_empty(&running, "deleted").await;
        let path = format!("/allocations/{id}");
        assert_eq!(call_placement(&running, "DELETE", &path, Value::Null).await.0, 404);
    }
}
