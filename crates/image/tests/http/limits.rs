//! Limits of images, projects and answers.

use axum::body::Body;
use kilonova_image::ImageOptions;
use serde_json::{Map, Value, json};

use crate::shelf::{ANNA, BEN, shelves, shelves_with};

fn properties(count: usize, length: usize) -> Value {
    let each = (0..count).map(|n| (format!("p{n}"), json!("v".repeat(length))));
    Value::Object(each.collect::<Map<String, Value>>())
}

#[tokio::test]
async fn properties_tags_and_members_are_limited() {
    let options = ImageOptions {
        properties: Some(3),
        tags: Some(2),
        members: Some(1),
        ..ImageOptions::default()
    };
    for shelf in shelves_with(options).await {
        assert_eq!(shelf.post(ANNA, properties(4, 1)).await.status, 413);
        let id = shelf.make(ANNA, properties(3, 1)).await;
        let step = json!([{"op": "add", "path": "/more", "value": "x"}]);
        let reply = shelf.patch(ANNA, &id, step).await;
        assert_eq!(reply.status, 413);
        let message = "number of allowed image properties. Attempted: 4, Maximum: 3";
        assert!(reply.body["message"].as_str().unwrap().contains(message), "{}", reply.body);
        let step = json!([{"op": "replace", "path": "/p1", "value": "x"}]);
        assert_eq!(shelf.patch(ANNA, &id, step).await.status, 200);
        for (tag, status) in [("a", 204), ("b", 204), ("c", 413)] {
            let path = format!("/v2/images/{id}/tags/{tag}");
            assert_eq!(shelf.call(ANNA, "PUT", &path, "", Body::empty()).await.status, status);
        }
        for (project, status) in [("blue", 200), ("green", 413)] {
            let path = format!("/v2/images/{id}/members");
            let body = json!({"member": project}).to_string();
            let reply = shelf.call(ANNA, "POST", &path, "application/json", body).await;
            assert_eq!(reply.status, status);
        }
    }
}

#[tokio::test]
async fn the_size_of_an_images_metadata_is_limited() {
    for shelf in shelves().await {
        assert_eq!(shelf.post(ANNA, properties(1, 65_536)).await.status, 400);
        assert_eq!(shelf.post(ANNA, properties(3, 60_000)).await.status, 413);
        let id = shelf.make(ANNA, properties(2, 60_000)).await;
        let step = json!([{"op": "add", "path": "/q", "value": "v".repeat(20_000)}]);
        assert_eq!(shelf.patch(ANNA, &id, step).await.status, 413);
        let step = json!([{"op": "remove", "path": "/p0"}]);
        assert_eq!(shelf.patch(ANNA, &id, step).await.status, 200);
    }
}

#[tokio::test]
async fn a_page_ends_at_its_length_or_weight() {
    let options = ImageOptions { default_page: 3, max_page: 30, ..ImageOptions::default() };
    for shelf in shelves_with(options).await {
        for _ in 0..32 {
            shelf.make(ANNA, json!({})).await;
        }
        let count = |body: &Value| body["images"].as_array().unwrap().len();
        for (query, expected) in [("", 3), ("?limit=100000", 30), ("?limit=10", 10)] {
            let page = shelf.get(ANNA, &format!("/v2/images{query}")).await.body;
            assert_eq!(count(&page), expected, "{query}");
            assert!(page["next"].is_string());
        }
        for _ in 0..20 {
            shelf.make(BEN, properties(2, 60_000)).await;
        }
        let (mut path, mut seen, mut largest) = ("/v2/images?limit=30".to_owned(), 0, 0);
        loop {
            let page = shelf.get(BEN, &path).await;
            seen += count(&page.body);
            largest = largest.max(page.bytes.len());
            match page.body["next"].as_str() {
                Some(next) => path = next.to_owned(),
                None => break,
            }
        }
        assert_eq!(seen, 20);
        assert!(largest < 1_200_000, "{largest} bytes in one answer");
    }
}

#[tokio::test]
async fn a_projects_images_and_bytes_are_limited() {
    let options = ImageOptions { images: Some(2), storage: Some(1000), ..ImageOptions::default() };
    for shelf in shelves_with(options).await {
        let a = shelf.make(ANNA, json!({})).await;
        let b = shelf.make(ANNA, json!({})).await;
        assert_eq!(shelf.post(ANNA, json!({})).await.status, 413);
        shelf.make(BEN, json!({})).await;
        assert_eq!(shelf.put(ANNA, &a, vec![0; 600]).await.status, 204);
        let refused = shelf.put(ANNA, &b, vec![0; 600]).await;
        assert_eq!(refused.status, 413, "{}", refused.body);
        assert_eq!((shelf.status(&b).await.as_str(), shelf.files()), ("queued", 1));
        assert_eq!(shelf.put(ANNA, &b, vec![0; 400]).await.status, 204);
        assert_eq!(shelf.delete(ANNA, &a).await.status, 204);
        let c = shelf.make(ANNA, json!({})).await;
        let (x, y) = tokio::join!(shelf.put(ANNA, &c, vec![0; 600]), shelf.post(ANNA, json!({})));
        assert_eq!((x.status.as_u16(), y.status.as_u16()), (204, 413));
    }
}
