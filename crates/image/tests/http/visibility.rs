//! Visibility, and who may change and delete images.

use serde_json::{Value, json};

use crate::shelf::{ADMIN, ANNA, BEN, Shelf, shelves};

async fn names(shelf: &Shelf, who: &str, query: &str) -> Vec<String> {
    let reply = shelf.get(who, &format!("/v2/images{query}")).await;
    let images = reply.body["images"].as_array().unwrap().clone();
    images.iter().map(|image| image["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn version_documents_are_public_and_the_rest_requires_a_token() {
    for shelf in shelves().await {
        for path in ["", "/v2", "/v2/"] {
            let reply = shelf.get("", path).await;
            assert_eq!(reply.status, 300, "{path}");
            let newest = &reply.body["versions"][0];
            assert_eq!(newest["status"], "CURRENT");
            assert_eq!(newest["links"][0]["href"], "http://cloud.example/image/v2/");
        }
        for path in ["/v2/images", "/v2/images/x", "/v2/images/x/file", "/v2/schemas/image"] {
            assert_eq!(shelf.get("", path).await.status, 401, "{path}");
        }
        let schema = shelf.get(ANNA, "/v2/schemas/image").await.body;
        assert_eq!(schema["properties"]["min_ram"]["type"], "integer");
    }
}

#[tokio::test]
async fn a_project_sees_its_own_images_and_the_public_ones() {
    for shelf in shelves().await {
        for visibility in ["private", "shared", "community"] {
            shelf.make(ANNA, json!({"name": visibility, "visibility": visibility})).await;
        }
        shelf.make(ADMIN, json!({"name": "public", "visibility": "public"})).await;
        shelf.make(ANNA, json!({"name": "hidden", "os_hidden": true})).await;

        assert_eq!(names(&shelf, ANNA, "").await, ["public", "community", "shared", "private"]);
        assert_eq!(names(&shelf, BEN, "").await, ["public"]);
        assert_eq!(names(&shelf, BEN, "?visibility=community").await, ["community"]);
        assert_eq!(names(&shelf, BEN, "?visibility=all").await, ["public", "community"]);
        assert_eq!(names(&shelf, BEN, "?visibility=private").await, [""; 0]);
        assert_eq!(names(&shelf, BEN, "?owner=red").await, [""; 0]);
        assert_eq!(names(&shelf, ANNA, "?os_hidden=true").await, ["hidden"]);
        assert_eq!(names(&shelf, ADMIN, "").await, ["public", "shared", "private"]);
        assert_eq!(names(&shelf, ADMIN, "?visibility=all").await.len(), 4);
        assert_eq!(shelf.get(BEN, "/v2/images?visibility=secret").await.status, 400);
    }
}

#[tokio::test]
async fn an_image_of_another_project_is_not_found() {
    for shelf in shelves().await {
        for visibility in ["private", "shared"] {
            let id = shelf.make(ANNA, json!({"visibility": visibility})).await;
            let path = format!("/v2/images/{id}");
            assert_eq!(shelf.put(ANNA, &id, "data").await.status, 204);
            for (path, status) in [(path.clone(), 404), (format!("{path}/file"), 404)] {
                assert_eq!(shelf.get(BEN, &path).await.status, status);
            }
            let step = json!([{"op": "replace", "path": "/name", "value": "mine"}]);
            assert_eq!(shelf.patch(BEN, &id, step).await.status, 404);
            assert_eq!(shelf.put(BEN, &id, "x").await.status, 404);
            assert_eq!(shelf.delete(BEN, &id).await.status, 404);
            let marker = shelf.get(BEN, &format!("/v2/images?marker={id}")).await;
            assert_eq!(marker.status, 400);
            let missing = uuid::Uuid::new_v4();
            let marker = shelf.get(BEN, &format!("/v2/images?marker={missing}")).await;
            assert_eq!(marker.status, 400);
            let found = names(&shelf, BEN, &format!("?id=in:{id}")).await;
            assert!(found.is_empty());
        }
    }
}

#[tokio::test]
async fn a_public_image_is_read_by_all_and_changed_by_its_project() {
    for shelf in shelves().await {
        let refused = shelf.post(ANNA, json!({"name": "x", "visibility": "public"})).await;
        assert_eq!(refused.status, 403);
        let id = shelf.make(ADMIN, json!({"visibility": "public", "protected": true})).await;
        assert_eq!(shelf.put(ADMIN, &id, "data").await.status, 204);
        assert_eq!(shelf.get(BEN, &format!("/v2/images/{id}/file")).await.bytes, b"data");
        let step = json!([{"op": "add", "path": "/a", "value": "b"}]);
        assert_eq!(shelf.patch(BEN, &id, step).await.status, 403);
        assert_eq!(shelf.delete(BEN, &id).await.status, 403);

        let refused = shelf.delete(ADMIN, &id).await;
        assert_eq!(refused.status, 403);
        assert!(refused.body["message"].as_str().unwrap().contains("protected"));
        let step = json!([{"op": "replace", "path": "/protected", "value": false}]);
        assert_eq!(shelf.patch(ADMIN, &id, step).await.status, 200);
        assert_eq!(shelf.delete(ADMIN, &id).await.status, 204);
        assert_eq!(shelf.delete(ADMIN, &id).await.status, 404);
        assert_eq!(shelf.files(), 0);

        let own = shelf.make(ANNA, json!({})).await;
        let publish = json!([{"op": "replace", "path": "/visibility", "value": "public"}]);
        assert_eq!(shelf.patch(ANNA, &own, publish).await.status, 403);
        let give = json!([{"op": "replace", "path": "/owner", "value": "blue"}]);
        assert_eq!(shelf.patch(ANNA, &own, give.clone()).await.status, 403);
        assert_eq!(shelf.patch(ADMIN, &own, give).await.status, 200);
        assert_eq!(shelf.get(BEN, &format!("/v2/images/{own}")).await.status, 200);
    }
}

#[tokio::test]
async fn creating_an_image_requires_a_project() {
    for shelf in shelves().await {
        let reply = shelf.post("eve:", json!({"name": "x"})).await;
        assert_eq!(reply.status, 403);
        assert_eq!(reply.body["code"], Value::from("403 Forbidden"));
    }
}
