//! Filters and pages.

use serde_json::{Value, json};

use crate::shelf::{ANNA, BEN, Shelf, shelves};

async fn ids(shelf: &Shelf, query: &str) -> Vec<Value> {
    let reply = shelf.get(ANNA, &format!("/v2/images{query}")).await;
    assert_eq!(reply.status, 200, "{query}");
    reply.body["images"].as_array().unwrap().iter().map(|image| image["id"].clone()).collect()
}

#[tokio::test]
async fn filters_restrict_a_list() {
    for shelf in shelves().await {
        let a = shelf.make(ANNA, json!({"name": "a", "tags": ["x", "y"], "hw_arch": "arm"})).await;
        let b = shelf.make(ANNA, json!({"name": "b,c", "disk_format": "qcow2"})).await;
        shelf.put(ANNA, &a, "data").await;
        for (query, expected) in [
            ("?name=a".to_owned(), vec![&a]),
            ("?name=in:a,%22b,c%22".to_owned(), vec![&b, &a]),
            ("?name=A".to_owned(), vec![]),
            ("?status=active".to_owned(), vec![&a]),
            ("?status=in:queued,active".to_owned(), vec![&b, &a]),
            ("?disk_format=qcow2".to_owned(), vec![&b]),
            ("?tag=x&tag=y".to_owned(), vec![&a]),
            ("?tag=x&tag=z".to_owned(), vec![]),
            ("?hw_arch=arm".to_owned(), vec![&a]),
            ("?owner=red&sort=name:asc".to_owned(), vec![&b, &a]),
            ("?owner=blue".to_owned(), vec![]),
            ("?size_min=4&size_max=4".to_owned(), vec![&a]),
            ("?protected=true".to_owned(), vec![]),
            (format!("?id=in:{a},{b},{a},nonsense"), vec![&b, &a]),
            (format!("?id=in%3A{b}"), vec![&b]),
            (format!("?id={a}"), vec![&a]),
        ] {
            let expected: Vec<Value> = expected.into_iter().map(|id| json!(id)).collect();
            assert_eq!(ids(&shelf, &query).await, expected, "{query}");
        }
        for query in ["?limit=-1", "?limit=x", "?marker=x", "?protected=x", "?size_min=x"] {
            let reply = shelf.get(ANNA, &format!("/v2/images{query}")).await;
            assert_eq!(reply.status, 400, "{query}");
        }
    }
}

#[tokio::test]
async fn pages_cover_the_list() {
    for shelf in shelves().await {
        let mut made = Vec::new();
        for number in 0..7 {
            made.push(json!(shelf.make(ANNA, json!({"name": format!("i{number}")})).await));
            shelf.make(BEN, json!({"visibility": "community"})).await;
        }
        made.reverse();
        let mut path = "/v2/images?limit=3&owner=red".to_owned();
        let (mut seen, mut pages) = (Vec::new(), 0);
        loop {
            let reply = shelf.get(ANNA, &path).await;
            assert_eq!(reply.body["first"], "/v2/images?limit=3&owner=red");
            let images = reply.body["images"].as_array().unwrap();
            seen.extend(images.iter().map(|image| image["id"].clone()));
            pages += 1;
            match reply.body["next"].as_str() {
                Some(next) => path = next.to_owned(),
                None => break,
            }
        }
        assert_eq!((seen, pages), (made, 3));
        assert_eq!(ids(&shelf, "?limit=0").await, Vec::<Value>::new());
    }
}
