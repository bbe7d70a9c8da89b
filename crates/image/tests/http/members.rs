//! Images shared with projects.

use axum::body::Body;
use serde_json::{Value, json};

use crate::shelf::{ADMIN, ANNA, BEN, Reply, Shelf, shelves};

const EVE: &str = "eve:green";

async fn names(shelf: &Shelf, who: &str, query: &str) -> Vec<String> {
    let reply = shelf.get(who, &format!("/v2/images{query}")).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let images = reply.body["images"].as_array().unwrap().clone();
    images.iter().map(|image| image["name"].as_str().unwrap().to_owned()).collect()
}

async fn share(shelf: &Shelf, who: &str, id: &str, with: &str) -> Reply {
    let path = format!("/v2/images/{id}/members");
    shelf.call(who, "POST", &path, "application/json", json!({"member": with}).to_string()).await
}

async fn answer(shelf: &Shelf, who: &str, id: &str, member: &str, status: Value) -> Reply {
    let path = format!("/v2/images/{id}/members/{member}");
    shelf.call(who, "PUT", &path, "application/json", json!({"status": status}).to_string()).await
}

#[tokio::test]
async fn a_member_sees_the_image_and_decides_whether_its_lists_show_it() {
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({"name": "mine"})).await;
        let path = format!("/v2/images/{id}");
        assert_eq!(shelf.put(ANNA, &id, "data").await.status, 204);
        assert_eq!(shelf.get(BEN, &path).await.status, 404);
        let reply = share(&shelf, ANNA, &id, "blue").await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(
            (&reply.body["member_id"], &reply.body["status"]),
            (&json!("blue"), &json!("pending"))
        );
        assert_eq!(reply.body["image_id"], json!(id));
        assert_eq!(reply.body["schema"], "/v2/schemas/member");
        assert_eq!(share(&shelf, ANNA, &id, "blue").await.status, 409);

        assert_eq!(shelf.get(BEN, &path).await.status, 200);
        assert_eq!(shelf.get(BEN, &format!("{path}/file")).await.bytes, b"data");
        assert_eq!(shelf.get(EVE, &path).await.status, 404);
        assert_eq!(names(&shelf, BEN, "").await, [""; 0]);
        assert_eq!(names(&shelf, BEN, "?member_status=pending&visibility=shared").await, ["mine"]);
        assert_eq!(names(&shelf, BEN, "?member_status=all").await, ["mine"]);
        assert_eq!(names(&shelf, BEN, &format!("?id={id}")).await, [""; 0]);
        assert_eq!(shelf.get(BEN, "/v2/images?member_status=x").await.status, 400);

        assert_eq!(
            answer(&shelf, ANNA, &id, "blue", json!("accepted")).await.status,
            403,
            "the owner cannot decide"
        );
        assert_eq!(answer(&shelf, BEN, &id, "blue", json!("perhaps")).await.status, 400);
        let reply = answer(&shelf, BEN, &id, "blue", json!("accepted")).await;
        assert_eq!((reply.status.as_u16(), &reply.body["status"]), (200, &json!("accepted")));
        assert_eq!(names(&shelf, BEN, "").await, ["mine"]);
        assert_eq!(names(&shelf, BEN, &format!("?id={id}")).await, ["mine"]);
        assert_eq!(answer(&shelf, BEN, &id, "blue", json!("rejected")).await.status, 200);
        assert_eq!(names(&shelf, BEN, "").await, [""; 0]);
        assert_eq!(shelf.get(BEN, &path).await.status, 200, "the image is still readable by id");

        let step = json!([{"op": "replace", "path": "/name", "value": "stolen"}]);
        assert_eq!(shelf.patch(BEN, &id, step).await.status, 403);
        assert_eq!(shelf.delete(BEN, &id).await.status, 403);
        let members = format!("{path}/members/blue");
        let refused = shelf.call(BEN, "DELETE", &members, "", Body::empty()).await;
        assert_eq!(refused.status, 403);
        assert_eq!(shelf.call(ANNA, "DELETE", &members, "", Body::empty()).await.status, 204);
        assert_eq!(shelf.call(ANNA, "DELETE", &members, "", Body::empty()).await.status, 404);
        assert_eq!(shelf.get(BEN, &path).await.status, 404);
        assert_eq!(shelf.delete(ANNA, &id).await.status, 204);
    }
}

#[tokio::test]
async fn the_owner_sees_all_members_and_a_member_sees_itself() {
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({})).await;
        for project in ["blue", "green"] {
            assert_eq!(share(&shelf, ANNA, &id, project).await.status, 200);
        }
        let path = format!("/v2/images/{id}/members");
        for (who, expected) in
            [(ANNA, vec!["blue", "green"]), (ADMIN, vec!["blue", "green"]), (BEN, vec!["blue"])]
        {
            let reply = shelf.get(who, &path).await;
            let members = reply.body["members"].as_array().unwrap().clone();
            let members: Vec<&str> =
                members.iter().map(|member| member["member_id"].as_str().unwrap()).collect();
            assert_eq!(members, expected, "{who}");
        }
        assert_eq!(shelf.get(BEN, &format!("{path}/blue")).await.status, 200);
        assert_eq!(shelf.get(BEN, &format!("{path}/green")).await.status, 404);
        assert_eq!(shelf.get("zoe:white", &path).await.status, 404);
        assert_eq!(share(&shelf, BEN, &id, "white").await.status, 403);
        assert_eq!(share(&shelf, "zoe:white", &id, "white").await.status, 404);
        assert_eq!(answer(&shelf, BEN, &id, "green", json!("accepted")).await.status, 404);

        let private = shelf.make(ANNA, json!({"visibility": "private"})).await;
        assert_eq!(share(&shelf, ANNA, &private, "blue").await.status, 403);
        for body in ["{}", "[]", "{\"member\": \"\"}", "{\"member\": 7}"] {
            let reply = shelf.call(ANNA, "POST", &path, "application/json", body).await;
            assert_eq!(reply.status, 400, "{body}");
        }
        assert_eq!(shelf.delete(ANNA, &id).await.status, 204, "its members are deleted with it");
    }
}

#[tokio::test]
async fn a_deactivated_image_cannot_be_downloaded() {
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({})).await;
        let path = format!("/v2/images/{id}");
        let turn = async |who, word: &str| {
            let path = format!("{path}/actions/{word}");
            shelf.call(who, "POST", &path, "", Body::empty()).await.status
        };
        assert_eq!(turn(ANNA, "deactivate").await, 403, "the image is queued");
        shelf.put(ANNA, &id, "data").await;
        assert_eq!(turn(BEN, "deactivate").await, 404);
        assert_eq!(turn(ANNA, "deactivate").await, 204);
        assert_eq!(turn(ANNA, "deactivate").await, 204);
        assert_eq!(shelf.status(&id).await, "deactivated");
        assert_eq!(shelf.get(ANNA, &format!("{path}/file")).await.status, 403);
        assert_eq!(shelf.get(ADMIN, &format!("{path}/file")).await.bytes, b"data");
        assert_eq!(turn(ANNA, "reactivate").await, 204);
        assert_eq!(shelf.get(ANNA, &format!("{path}/file")).await.bytes, b"data");
    }
}
