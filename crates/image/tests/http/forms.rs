//! Error formats, the old patch dialect, schemas, collections that are always empty, and the rights
//! of roles.

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::shelf::{ADMIN, ANNA, Shelf, shelves};

async fn ask(shelf: &Shelf, accept: Option<&str>) -> (String, String) {
    let mut request = Request::get("/image/v2/images/nonsense").header("x-auth-token", ANNA);
    if let Some(accept) = accept {
        request = request.header("accept", accept);
    }
    let request = request.body(Body::empty()).unwrap();
    let response = shelf.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 404);
    let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (kind, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn an_error_is_html_unless_json_is_requested() {
    for shelf in shelves().await {
        let (kind, text) = ask(&shelf, Some("*/*")).await;
        assert!(kind.starts_with("text/html"), "{kind}");
        assert_eq!(
            text,
            "<html>\n <head>\n  <title>404 Not Found</title>\n </head>\n <body>\n  \
             <h1>404 Not Found</h1>\n  No image found with ID nonsense<br /><br />\n\n\n </body>\n</html>"
        );
        let (kind, text) = ask(&shelf, Some("application/json")).await;
        assert_eq!(kind, "application/json");
        let body: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(body["message"], "No image found with ID nonsense");
        assert_eq!((&body["code"], &body["title"]), (&json!("404 Not Found"), &json!("Not Found")));
        let (kind, text) = ask(&shelf, None).await;
        assert!(kind.starts_with("text/plain"), "{kind}");
        assert!(text.starts_with("404 Not Found\n\nNo image found"), "{text}");
    }
}

#[tokio::test]
async fn the_old_patch_dialect_is_accepted() {
    const OLD: &str = "application/openstack-images-v2.0-json-patch";
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({"a": "1", "b": "2"})).await;
        let path = format!("/v2/images/{id}");
        let steps = json!([
            {"replace": "/name", "value": "other"}, {"add": "/c", "value": "3"}, {"remove": "/b"},
        ]);
        let reply = shelf.call(ANNA, "PATCH", &path, OLD, steps.to_string()).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!((&reply.body["name"], &reply.body["c"]), (&json!("other"), &json!("3")));
        assert!(reply.body.get("b").is_none());
        for (steps, status) in [
            (json!([{"add": "/a", "value": "x"}]), 409),
            (json!([{"add": "/name", "value": "x"}]), 409),
            (json!([{"replace": "/no", "value": "x"}]), 409),
            (json!([{"op": "add", "path": "/z", "value": "x"}]), 400),
        ] {
            let reply = shelf.call(ANNA, "PATCH", &path, OLD, steps.to_string()).await;
            assert_eq!(reply.status, status, "{steps}");
        }
        let reply = shelf.call(ANNA, "PATCH", &path, "application/json", "[]").await;
        assert_eq!(reply.status, 415);
        assert!(reply.headers["accept-patch"].to_str().unwrap().contains(OLD));
    }
}

#[tokio::test]
async fn reserved_attributes_are_refused() {
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({})).await;
        for key in ["os_glance_import_task", "os_glance_x", "location", "deleted", "locations"] {
            let reply = shelf.post(ADMIN, json!({key: "x"})).await;
            assert_eq!(reply.status, 403, "{key}");
            let message = reply.body["message"].as_str().unwrap();
            assert_eq!(message, format!("Attribute '{key}' is reserved."));
            for verb in ["add", "replace", "remove"] {
                let step = json!([{"op": verb, "path": format!("/{key}"), "value": "x"}]);
                assert_eq!(shelf.patch(ADMIN, &id, step).await.status, 403, "{verb} {key}");
            }
        }
    }
}

#[tokio::test]
async fn schemas_have_the_shape_that_clients_validate_with() {
    for shelf in shelves().await {
        let image = shelf.get(ANNA, "/v2/schemas/image").await.body;
        for key in ["disk_format", "container_format"] {
            let schema = &image["properties"][key];
            assert_eq!(schema["type"], json!(["null", "string"]));
            assert_eq!(schema["enum"][0], Value::Null, "{key}");
        }
        for name in ["image", "images", "member", "members", "task", "tasks"] {
            let schema = shelf.get(ANNA, &format!("/v2/schemas/{name}")).await.body;
            assert_eq!(schema["name"], json!(name));
        }
        for name in ["namespace", "object", "property", "resource_type", "tag"] {
            let schema = shelf.get(ANNA, &format!("/v2/schemas/metadefs/{name}")).await.body;
            assert!(schema["properties"].is_object(), "{name}");
        }
        assert_eq!(shelf.get(ANNA, "/v2/schemas/metadefs/nonsense").await.status, 404);
        assert_eq!(shelf.get(ANNA, "/v2/schemas/nonsense").await.status, 404);
    }
}

#[tokio::test]
async fn unmanaged_collections_are_empty() {
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({})).await;
        for (who, path, list) in [
            (ADMIN, "/v2/tasks".to_owned(), "tasks"),
            (ANNA, format!("/v2/images/{id}/tasks"), "tasks"),
        ] {
            let reply = shelf.get(who, &path).await;
            assert_eq!((reply.status.as_u16(), &reply.body[list]), (200, &json!([])), "{path}");
        }
        let imports = shelf.get(ANNA, "/v2/info/import").await.body;
        assert_eq!(imports["import-methods"]["value"], json!([]));
        let usage = shelf.get(ANNA, "/v2/info/usage").await;
        assert_eq!((usage.status.as_u16(), usage.body), (200, json!({"usage": {}})));
        assert_eq!(shelf.get(ANNA, "/v2/info/stores").await.status, 404);
        assert_eq!(shelf.get(ANNA, "/v2/tasks").await.status, 403);
    }
}

#[tokio::test]
async fn a_reader_reads_and_an_unknown_role_does_nothing() {
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({})).await;
        shelf.put(ANNA, &id, "data").await;
        let queued = shelf.make(ANNA, json!({})).await;
        let ask = async |role: &str, method: &str, path: &str, kind: &str, body: String| {
            let request = Request::builder()
                .method(method)
                .uri(format!("/image{path}"))
                .header("x-auth-token", ANNA)
                .header("x-roles", role)
                .header("content-type", kind)
                .body(Body::from(body))
                .unwrap();
            shelf.router.clone().oneshot(request).await.unwrap().status().as_u16()
        };
        const JSON: &str = "application/json";
        const PATCH: &str = "application/openstack-images-v2.1-json-patch";
        let one = format!("/v2/images/{id}");
        let step = json!([{"op": "add", "path": "/a", "value": "b"}]).to_string();
        let (put, post) = (format!("/v2/images/{queued}/file"), format!("{one}/members"));
        let member = json!({"member": "blue"}).to_string();
        for (method, path, kind, body, reader, made_up) in [
            ("GET", "/v2/images", JSON, "", 200, 403),
            ("GET", &one, JSON, "", 200, 404),
            ("GET", &post, JSON, "", 200, 404),
            ("GET", &format!("{one}/file"), JSON, "", 403, 404),
            ("POST", "/v2/images", JSON, "{}", 403, 403),
            ("PATCH", &one, PATCH, &step, 403, 404),
            ("PUT", &put, "application/octet-stream", "data", 403, 404),
            ("PUT", &format!("{one}/tags/t"), JSON, "", 403, 404),
            ("DELETE", &format!("{one}/tags/t"), JSON, "", 403, 404),
            ("POST", &post, JSON, &member, 403, 404),
            ("POST", &format!("{one}/actions/deactivate"), JSON, "", 403, 404),
            ("POST", &format!("{one}/actions/reactivate"), JSON, "", 403, 404),
            ("DELETE", &one, JSON, "", 403, 404),
        ] {
            let shown = format!("{method} {path}");
            assert_eq!(
                ask("reader", method, path, kind, body.into()).await,
                reader,
                "reader {shown}"
            );
            assert_eq!(ask("boss", method, path, kind, body.into()).await, made_up, "boss {shown}");
        }
    }
}
