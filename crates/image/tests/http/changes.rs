//! Creating, patching and tagging images.

use axum::body::Body;
use serde_json::{Value, json};

use crate::shelf::{ANNA, BEN, shelves};

#[tokio::test]
async fn an_image_is_created_as_by_the_client() {
    for shelf in shelves().await {
        let reply = shelf
            .post(
                ANNA,
                json!({
                    "name": "wimg", "container_format": "bare", "disk_format": "raw", "foo": "bar",
                    "owner_specified.openstack.md5": "",
                    "owner_specified.openstack.object": "images/wimg",
                }),
            )
            .await;
        assert_eq!(reply.status, 201);
        let mut image = reply.body;
        let id = image["id"].as_str().unwrap().to_owned();
        let place = format!("http://cloud.example/image/v2/images/{id}");
        assert_eq!(reply.headers["location"], place);
        let times = [image["created_at"].take(), image["updated_at"].take()];
        assert!(times.iter().all(|t| t.as_str().unwrap().ends_with('Z')));
        assert_eq!(
            image,
            json!({
                "foo": "bar",
                "owner_specified.openstack.md5": "",
                "owner_specified.openstack.object": "images/wimg",
                "name": "wimg", "disk_format": "raw", "container_format": "bare",
                "visibility": "shared", "size": null, "virtual_size": null, "status": "queued",
                "checksum": null, "protected": false, "min_ram": 0, "min_disk": 0, "owner": "red",
                "os_hidden": false, "os_hash_algo": null, "os_hash_value": null, "id": id,
                "created_at": null, "updated_at": null, "tags": [],
                "self": format!("/v2/images/{id}"), "file": format!("/v2/images/{id}/file"),
                "schema": "/v2/schemas/image",
            })
        );
        for missing in ["wimg", "", "..%2f..", "{x}"] {
            assert_eq!(shelf.get(ANNA, &format!("/v2/images/{missing}")).await.status, 404);
        }
        assert_eq!(shelf.get(ANNA, "/v2/images/a%00b").await.status, 400);
        let chosen = "6f0cf0d3-8f0a-4a6c-9d3e-5b1a86f6f4b2";
        assert_eq!(shelf.make(ANNA, json!({"id": chosen})).await, chosen);
        assert_eq!(shelf.post(ANNA, json!({"id": chosen})).await.status, 409);
    }
}

#[tokio::test]
async fn invalid_values_are_refused() {
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({})).await;
        let many: serde_json::Map<String, Value> =
            (0..200).map(|n| (format!("p{n}"), json!("v"))).collect();
        for (fields, status) in [
            (json!([]), 400),
            (json!({"name": "a\u{0}b"}), 400),
            (json!({"name": "a\nb"}), 400),
            (json!({"name": "x".repeat(256)}), 400),
            (json!({"name": 7}), 400),
            (json!({"id": "nonsense"}), 400),
            (json!({"disk_format": "vmdk"}), 400),
            (json!({"container_format": "tarball"}), 400),
            (json!({"visibility": "secret"}), 400),
            (json!({"min_ram": -1}), 400),
            (json!({"min_disk": 1_u64 << 40}), 400),
            (json!({"min_disk": "1"}), 400),
            (json!({"protected": "yes"}), 400),
            (json!({"tags": "x"}), 400),
            (json!({"tags": ["a\u{0}b"]}), 400),
            (json!({"prop": 7}), 400),
            (json!({"prop": "a\u{0}b"}), 400),
            (json!({"a\u{0}b": "c"}), 400),
            (json!({"status": "active"}), 403),
            (json!({"checksum": "0"}), 403),
            (json!({"locations": []}), 403),
            (json!({"owner": "blue"}), 403),
            (Value::Object(many), 413),
        ] {
            let reply = shelf.post(ANNA, fields.clone()).await;
            assert_eq!(reply.status, status, "{fields}");
            assert!(reply.body["message"].is_string());
            let Some((key, value)) = fields.as_object().and_then(|f| f.iter().next()) else {
                continue;
            };
            if key != "id" && status != 413 {
                let step = json!([{"op": "add", "path": format!("/{key}"), "value": value}]);
                assert_eq!(shelf.patch(ANNA, &id, step).await.status, status, "{fields}");
            }
        }
        let huge = Body::from(vec![b'['; 100_000_000]);
        let reply = shelf.call(ANNA, "POST", "/v2/images", "application/json", huge).await;
        assert_eq!(reply.status, 413);
    }
}

#[tokio::test]
async fn a_patch_adds_replaces_and_removes() {
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({"a": "1", "b": "2"})).await;
        let reply = shelf
            .patch(
                ANNA,
                &id,
                json!([
                    {"op": "replace", "path": "/name", "value": "other"},
                    {"op": "add", "path": "/hw:x~1y", "value": "z"},
                    {"op": "replace", "path": "/a", "value": "3"},
                    {"op": "remove", "path": "/b"},
                    {"op": "replace", "path": "/tags", "value": ["t", "s", "t"]},
                    {"op": "replace", "path": "/min_ram", "value": 64},
                ]),
            )
            .await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(reply.body["name"], "other");
        assert_eq!(reply.body["hw:x/y"], "z");
        assert_eq!(reply.body["a"], "3");
        assert!(reply.body.get("b").is_none());
        assert_eq!(reply.body["tags"], json!(["s", "t"]));
        assert_eq!(reply.body["min_ram"], 64);
        for (steps, status) in [
            (json!({}), 400),
            (json!([{"op": "test", "path": "/a", "value": "3"}]), 400),
            (json!([{"op": "add", "path": "a", "value": "3"}]), 400),
            (json!([{"op": "add", "path": "/a/b", "value": "3"}]), 400),
            (json!([{"op": "add", "path": "/a"}]), 400),
            (json!([{"op": "remove", "path": "/missing"}]), 409),
            (json!([{"op": "replace", "path": "/missing", "value": "x"}]), 409),
            (json!([{"op": "remove", "path": "/name"}]), 403),
            (json!([{"op": "replace", "path": "/id", "value": "x"}]), 403),
            (
                json!([{"op": "add", "path": "/z", "value": "1"}, {"op": "remove", "path": "/no"}]),
                409,
            ),
        ] {
            assert_eq!(shelf.patch(ANNA, &id, steps.clone()).await.status, status, "{steps}");
        }
        let path = format!("/v2/images/{id}");
        assert!(shelf.get(ANNA, &path).await.body.get("z").is_none());
        let reply = shelf.call(ANNA, "PATCH", &path, "application/json", "[]").await;
        assert_eq!(reply.status, 415);
    }
}

#[tokio::test]
async fn tags_are_added_and_removed() {
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({})).await;
        let path = format!("/v2/images/{id}/tags/t");
        for _ in 0..2 {
            assert_eq!(shelf.call(ANNA, "PUT", &path, "", Body::empty()).await.status, 204);
        }
        let shown = shelf.get(ANNA, &format!("/v2/images/{id}")).await.body;
        assert_eq!(shown["tags"], json!(["t"]));
        assert_eq!(shelf.call(ANNA, "DELETE", &path, "", Body::empty()).await.status, 204);
        assert_eq!(shelf.call(ANNA, "DELETE", &path, "", Body::empty()).await.status, 404);
    }
}

#[tokio::test]
async fn the_id_of_a_deleted_image_is_never_used_again() {
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({})).await;
        for who in [ANNA, BEN] {
            shelf.delete(ANNA, &id).await;
            let reply = shelf.post(who, json!({"id": id})).await;
            assert_eq!(reply.status, 409, "{who}: {}", reply.body);
            assert_eq!(reply.body["message"], format!("Image ID {id} already exists!"));
            assert_eq!(shelf.status(&id).await, "gone");
        }
    }
}

#[tokio::test]
async fn names_and_tags_may_be_blank_and_every_container_format_is_known() {
    for shelf in shelves().await {
        for name in ["", " "] {
            let id = shelf.make(ANNA, json!({"name": name, "tags": [name]})).await;
            let shown = shelf.get(ANNA, &format!("/v2/images/{id}")).await.body;
            assert_eq!((&shown["name"], &shown["tags"]), (&json!(name), &json!([name])));
        }
        let id = shelf.make(ANNA, json!({})).await;
        let path = format!("/v2/images/{id}/tags/%20");
        assert_eq!(shelf.call(ANNA, "PUT", &path, "", Body::empty()).await.status, 204);
        let step = json!([{"op": "replace", "path": "/name", "value": ""}]);
        assert_eq!(shelf.patch(ANNA, &id, step).await.body["name"], "");
        for format in ["ami", "ari", "aki", "bare", "ovf", "ova", "docker", "compressed"] {
            let id = shelf.make(ANNA, json!({"container_format": format})).await;
            assert_eq!(shelf.put(ANNA, &id, "data").await.status, 204, "{format}");
        }
        // The data must be in the disk format in each of them.
        let id = shelf.make(ANNA, json!({"container_format": "ova"})).await;
        assert_eq!(shelf.put(ANNA, &id, &b"QFI\xfb"[..]).await.status, 415);
    }
}
