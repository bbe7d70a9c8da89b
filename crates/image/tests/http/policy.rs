//! An operator's policy: the attributes that its rules see, and the ownership that no rule overrides.

use axum::body::Body;
use kilonova_policy::Defaults;
use serde_json::{Value, json};

use crate::shelf::{ADMIN, ANNA, BEN, Reply, Shelf, shelves};

/// `enforce_new_defaults = false`: the old defaults of nearly all rules allow everyone.
const OLD: Defaults = Defaults { new_only: false, scope: true };

async fn send(shelf: &Shelf, who: &str, method: &str, path: &str, body: Value) -> Reply {
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    shelf.call(who, method, path, "application/json", body).await
}

fn not_owner(reply: &Reply, what: &str) {
    assert_eq!(reply.status, 403, "{what}: {}", reply.body);
    assert_eq!(reply.body["message"], "You do not own this image", "{what}");
}

#[tokio::test]
async fn no_policy_lets_a_project_change_images_of_others() {
    for shelf in shelves().await {
        let shelf = &shelf.with_policy("", OLD);
        for visibility in ["public", "community", "shared"] {
            let owner = if visibility == "public" { ADMIN } else { ANNA };
            let id = shelf.make(owner, json!({"visibility": visibility, "tags": ["a"]})).await;
            let one = format!("/v2/images/{id}");
            if visibility == "shared" {
                let member = json!({"member": "blue"});
                let path = format!("{one}/members");
                assert_eq!(send(shelf, owner, "POST", &path, member).await.status, 200);
            }
            let step = json!([{"op": "replace", "path": "/name", "value": "taken"}]);
            not_owner(&shelf.patch(BEN, &id, step.clone()).await, "patch");
            not_owner(&shelf.put(BEN, &id, "theirs").await, "upload");
            assert_eq!(shelf.put(owner, &id, "data").await.status, 204);
            for (method, path) in [
                ("PUT", format!("{one}/tags/b")),
                ("DELETE", format!("{one}/tags/a")),
                ("POST", format!("{one}/actions/deactivate")),
                ("POST", format!("{one}/actions/reactivate")),
                ("DELETE", one.clone()),
            ] {
                not_owner(&send(shelf, BEN, method, &path, Value::Null).await, &path);
            }
            assert_eq!(shelf.get(BEN, &format!("{one}/file")).await.bytes, b"data");
            assert_eq!(shelf.patch(ADMIN, &id, step).await.status, 200);
            assert_eq!(shelf.delete(owner, &id).await.status, 204);
        }
        let refused = shelf.post(BEN, json!({"owner": "red"})).await;
        assert_eq!(refused.status, 403);
        let message = "You are not permitted to create images owned by 'red'";
        assert_eq!(refused.body["message"], message);
        assert_eq!(shelf.post(BEN, json!({"owner": "blue"})).await.status, 201);
        assert_eq!(shelf.post(ADMIN, json!({"owner": "red"})).await.status, 201);
    }
}

#[tokio::test]
async fn no_policy_lets_owner_and_member_change_roles() {
    for shelf in shelves().await {
        let shelf = &shelf.with_policy("", OLD);
        let id = shelf.make(ANNA, json!({})).await;
        let path = format!("/v2/images/{id}/members");
        let (blue, green) = (json!({"member": "blue"}), json!({"member": "green"}));
        assert_eq!(send(shelf, ANNA, "POST", &path, blue).await.status, 200);
        assert_eq!(send(shelf, BEN, "POST", &path, green).await.status, 403);
        let (blue, accepted) = (format!("{path}/blue"), json!({"status": "accepted"}));
        assert_eq!(send(shelf, ANNA, "PUT", &blue, accepted.clone()).await.status, 403);
        assert_eq!(send(shelf, BEN, "DELETE", &blue, Value::Null).await.status, 403);
        assert_eq!(send(shelf, BEN, "PUT", &blue, accepted).await.status, 200);
        assert_eq!(send(shelf, ANNA, "DELETE", &blue, Value::Null).await.status, 204);
    }
}

#[tokio::test]
async fn a_rule_sees_the_attributes_and_the_properties_of_an_image() {
    const TEXT: &str = "\
download_image: \"not ('aki':%(container_format)s or 'yes':%(secret)s) and 'False':%(protected)s and not 'red':%(member_id)s\"
modify_image: \"project_id:%(owner)s and 'shared':%(visibility)s and 'None':%(checksum)s\"
delete_image: \"project_id:%(owner)s and 'active':%(status)s and '4':%(size)s\"
";
    for shelf in shelves().await {
        let shelf = &shelf.with_policy(TEXT, Defaults::default());
        for (fields, status) in [
            (json!({"secret": "no"}), 200),
            (json!({"secret": "yes"}), 403),
            (json!({"container_format": "aki", "disk_format": "aki"}), 403),
            (json!({"protected": true}), 403),
            // A property cannot shadow an attribute.
            (json!({"member_id": "red"}), 200),
        ] {
            let id = shelf.make(ANNA, fields.clone()).await;
            assert_eq!(shelf.put(ANNA, &id, "data").await.status, 204);
            let reply = shelf.get(ANNA, &format!("/v2/images/{id}/file")).await;
            assert_eq!(reply.status, status, "{fields}");
        }
        let step = json!([{"op": "replace", "path": "/name", "value": "new"}]);
        for (visibility, status) in [("shared", 200), ("private", 403)] {
            let id = shelf.make(ANNA, json!({"visibility": visibility})).await;
            let changed = shelf.patch(ANNA, &id, step.clone()).await;
            assert_eq!(changed.status, status, "{visibility}");
            assert_eq!(shelf.delete(ANNA, &id).await.status, 403, "the image is queued");
            assert_eq!(shelf.put(ANNA, &id, "data").await.status, 204);
            assert_eq!(shelf.patch(ANNA, &id, step.clone()).await.status, 403, "a checksum");
            assert_eq!(shelf.delete(ANNA, &id).await.status, 204);
        }
    }
}
