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
            ("?owner=red&sort=name:asc".to_owned(), vec![&a, &b]),
            ("?owner=blue".to_owned(), vec![]),
            ("?size_min=4&size_max=4".to_owned(), vec![&a]),
            ("?protected=true".to_owned(), vec![]),
            ("?name=eq:a".to_owned(), vec![&a]),
            (format!("?id=in:{a},{b},{a},nonsense"), vec![&b, &a]),
            (format!("?id=in%3A{b}"), vec![&b]),
            (format!("?id={a}"), vec![&a]),
        ] {
            let expected: Vec<Value> = expected.into_iter().map(|id| json!(id)).collect();
            assert_eq!(ids(&shelf, &query).await, expected, "{query}");
        }
        for query in [
            "?limit=-1",
            "?limit=x",
            "?marker=x",
            "?protected=x",
            "?size_min=x",
            "?changes-since=2026-01-01",
        ] {
            let reply = shelf.get(ANNA, &format!("/v2/images{query}")).await;
            assert_eq!(reply.status, 400, "{query}");
        }
    }
}

#[tokio::test]
async fn lists_are_restricted_by_numbers_times_and_hashes() {
    for shelf in shelves().await {
        let a = shelf.make(ANNA, json!({"min_ram": 512, "min_disk": 3})).await;
        let b = shelf.make(ANNA, json!({"min_ram": 1024})).await;
        shelf.put(ANNA, &a, "abc").await;
        let shown = shelf.get(ANNA, &format!("/v2/images/{a}")).await.body;
        let hash = shown["os_hash_value"].as_str().unwrap();
        // The second image may be of a later second than the first.
        let sql = "UPDATE images SET created_at = ?1, updated_at = ?2";
        let (created, updated) = (1_795_258_635_600_000_i64, 1_795_258_695_000_000_i64);
        let wrote: Result<u64, kilonova_store::Error> = shelf
            .store
            .write(move |tx| tx.execute(sql, kilonova_store::params![created, updated]))
            .await;
        assert_eq!(wrote.unwrap(), 2);
        let shown = shelf.get(ANNA, &format!("/v2/images/{a}")).await.body;
        assert_eq!(shown["created_at"], "2026-11-21T10:57:15Z");
        let (one, other, all, none) = (vec![&a], vec![&b], vec![&a, &b], vec![]);
        for (query, expected) in [
            ("min_ram=512", &one),
            ("min_ram_min=513", &other),
            ("min_ram_max=1024", &all),
            ("min_ram_min=-1&min_ram_max=512", &one),
            ("min_disk=0", &other),
            ("min_disk_min=4", &none),
            ("size=3", &one),
            ("size=99999999999999999999999", &none),
            ("size_max=3", &one),
            ("virtual_size_min=0", &one),
            ("checksum=900150983cd24fb0d6963f7d28e17f72", &one),
            ("checksum=900150983cd24fb0d6963f7d28e17f73", &none),
            (&format!("os_hash_value={hash}"), &one),
            ("os_hash_value=0", &none),
            ("os_hash_algo=sha512", &one),
            ("os_hash_algo=md5", &none),
            ("created_at=2026-11-21T10:57:15Z", &all),
            ("created_at=eq:2026-11-21T12:57:15%2B02:00", &all),
            ("created_at=neq:2026-11-21T10:57:15Z", &none),
            ("created_at=gt:2026-11-21T10:57:15Z", &none),
            ("created_at=gt:2026-11-21T10:57:14Z", &all),
            ("created_at=gte:2026-11-21T10:57:15Z", &all),
            ("created_at=lt:2026-11-21T10:57:15Z", &none),
            ("created_at=lte:2026-11-21T10:57:15", &all),
            ("updated_at=gte:2026-11-21&updated_at=lt:2026-11-22", &all),
            ("updated_at=gt:2026-11-22", &none),
            ("deleted=true", &all),
        ] {
            let mut found = ids(&shelf, &format!("?{query}")).await;
            found.sort_by_key(|id| *id != json!(a));
            let expected: Vec<Value> = expected.iter().map(|id| json!(id)).collect();
            assert_eq!(found, expected, "{query}");
        }
        for (query, message) in [
            ("min_ram_min=x", "Unable to filter on a range with a non-numeric value."),
            ("created_at=over:2026-11-21", "Unable to filter on a unknown operator."),
            (
                "updated_at=gt:yesterday",
                "Bad \"updated_at\" query filter format. Use ISO 8601 DateTime notation.",
            ),
        ] {
            let reply = shelf.get(ANNA, &format!("/v2/images?{query}")).await;
            assert_eq!((reply.status.as_u16(), &reply.body["message"]), (400, &json!(message)));
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

#[tokio::test]
async fn lists_have_the_requested_order() {
    for shelf in shelves().await {
        let b = shelf.make(ANNA, json!({"name": "b", "disk_format": "qcow2"})).await;
        let a = shelf.make(ANNA, json!({"name": "a"})).await;
        let c = shelf.make(ANNA, json!({"name": "c"})).await;
        shelf.put(ANNA, &a, "data").await;
        shelf.put(ANNA, &c, "da").await;
        for (query, wanted) in [
            ("", [&c, &a, &b]),
            ("?sort_dir=asc", [&b, &a, &c]),
            ("?sort_key=created_at&sort_dir=asc", [&b, &a, &c]),
            ("?sort_key=name", [&c, &b, &a]),
            ("?sort_key=name&sort_dir=asc", [&a, &b, &c]),
            ("?sort_key=size&sort_dir=asc", [&b, &c, &a]),
            ("?sort_key=updated_at", [&c, &a, &b]),
            ("?sort_key=disk_format&sort_dir=asc", [&b, &a, &c]),
            ("?sort_key=disk_format&sort_dir=desc", [&c, &a, &b]),
            ("?sort_key=disk_format&sort_key=name&sort_dir=desc&sort_dir=asc", [&a, &c, &b]),
            (
                "?sort_key=disk_format&sort_key=disk_format&sort_key=name&sort_dir=desc&sort_dir=desc&sort_dir=asc",
                [&a, &c, &b],
            ),
            ("?sort=disk_format:asc,name", [&b, &c, &a]),
            ("?sort=disk_format:asc,disk_format,name", [&b, &c, &a]),
            ("?sort=status:asc,%20size:%20desc", [&a, &c, &b]),
            ("?sort=container_format", [&c, &a, &b]),
        ] {
            let wanted = wanted.map(|id| json!(id));
            assert_eq!(ids(&shelf, query).await, wanted, "{query}");
        }
        let mut by_id = [&a, &b, &c].map(|id| json!(id));
        by_id.sort_by_key(Value::to_string);
        assert_eq!(ids(&shelf, "?sort=id:asc").await, by_id, "sorted by id");
        let named = format!("?id=in:{a},{b},{c}&sort=name:asc&marker={a}");
        assert_eq!(ids(&shelf, &named).await, [json!(b), json!(c)], "{named}");
        for query in [
            "?sort_key=owner",
            "?sort_key=",
            "?sort_dir=up",
            "?sort=name:up",
            "?sort=",
            "?sort=name&sort_key=name",
            "?sort=name&sort_dir=asc",
            "?sort_key=name&sort_dir=asc&sort_dir=desc",
        ] {
            let reply = shelf.get(ANNA, &format!("/v2/images{query}")).await;
            assert_eq!(reply.status, 400, "{query}");
        }
    }
}

#[tokio::test]
async fn pages_of_any_order_follow_each_other_to_the_end() {
    for shelf in shelves().await {
        let mut made = Vec::new();
        for number in 0..7 {
            let name = format!("i{}", number * 3 % 7);
            made.push((name.clone(), json!(shelf.make(ANNA, json!({"name": name})).await)));
        }
        made.sort_by(|a, b| a.0.cmp(&b.0));
        let made: Vec<Value> = made.into_iter().map(|(_, id)| id).collect();
        let mut path = "/v2/images?limit=2&sort_key=name&sort_dir=asc".to_owned();
        let mut seen = Vec::new();
        loop {
            let reply = shelf.get(ANNA, &path).await;
            let images = reply.body["images"].as_array().unwrap();
            assert!(images.len() <= 2, "a page has two images at most");
            seen.extend(images.iter().map(|image| image["id"].clone()));
            match reply.body["next"].as_str() {
                Some(next) => path = next.to_owned(),
                None => break,
            }
        }
        assert_eq!(seen, made, "every image by name, once");
    }
}
