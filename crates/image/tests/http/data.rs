//! Upload and download, refused data, and recovery after a crash.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::channel::Channel;
use kilonova_ids::ImageId;
use kilonova_image::{ImageOptions, Images, Swept};
use serde_json::{Value, json};

use crate::shelf::{ADMIN, ANNA, Shelf, shelves};

/// The first 80 bytes of a qcow2 file.
fn qcow2(version: u32, backing: u64, features: u64) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..4].copy_from_slice(b"QFI\xfb");
    header[4..8].copy_from_slice(&version.to_be_bytes());
    header[8..16].copy_from_slice(&backing.to_be_bytes());
    header[24..32].copy_from_slice(&(5_u64 << 30).to_be_bytes());
    header[72..80].copy_from_slice(&features.to_be_bytes());
    header
}

#[tokio::test]
async fn data_is_downloaded_as_uploaded() {
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({})).await;
        let path = format!("/v2/images/{id}/file");
        assert_eq!(shelf.get(ANNA, &path).await.status, 204);
        let data: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 251) as u8).collect();
        assert_eq!(shelf.put(ANNA, &id, data.clone()).await.status, 204);
        let image = shelf.get(ANNA, &format!("/v2/images/{id}")).await.body;
        assert_eq!(image["status"], "active");
        assert_eq!(image["size"], 1_000_000);
        assert_eq!(image["virtual_size"], 1_000_000);
        assert_eq!(image["os_hash_algo"], "sha512");
        let reply = shelf.get(ANNA, &path).await;
        assert!(reply.bytes == data);
        assert_eq!(reply.headers["content-length"], "1000000");
        assert_eq!(reply.headers["content-type"], "application/octet-stream");
        assert_eq!(reply.headers["content-md5"], image["checksum"].as_str().unwrap());

        let again = shelf.put(ANNA, &id, "other").await;
        assert_eq!(again.status, 409);
        assert_eq!(shelf.get(ANNA, &path).await.bytes.len(), 1_000_000);
        assert_eq!(shelf.files(), 1);
        let key: ImageId = id.parse().unwrap();
        let part = shelf.images.read(key, 999_000, 4096).await.unwrap();
        assert_eq!((part.size, part.bytes.len()), (1_000_000, 1000));
        assert!(part.bytes == data[999_000..]);
        assert_eq!(shelf.images.read(key, 1_000_000, 4096).await.unwrap().bytes, b"");
        let step = json!([{"op": "replace", "path": "/disk_format", "value": "iso"}]);
        assert_eq!(shelf.patch(ANNA, &id, step).await.status, 403);
    }
}

#[tokio::test]
async fn the_checksums_are_correct() {
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({})).await;
        shelf.put(ANNA, &id, "abc").await;
        let image = shelf.get(ANNA, &format!("/v2/images/{id}")).await.body;
        assert_eq!(image["checksum"], "900150983cd24fb0d6963f7d28e17f72");
        let hash = image["os_hash_value"].as_str().unwrap();
        assert!(hash.starts_with("ddaf35a193617abacc417349ae204131") && hash.len() == 128);
    }
}

#[tokio::test]
async fn data_of_another_format_is_refused() {
    for shelf in shelves().await {
        for (format, data, words) in [
            ("qcow2", b"plain".to_vec(), "not qcow2"),
            ("qcow2", b"QFI\xfb".to_vec(), "broken header"),
            ("qcow2", qcow2(4, 0, 0), "broken header"),
            ("qcow2", qcow2(2, 104, 0), "backing file"),
            ("qcow2", qcow2(3, 104, 0), "backing file"),
            ("qcow2", qcow2(3, 0, 4), "another file"),
            ("qcow2", qcow2(3, 0, 1 << 5), "features"),
            ("raw", qcow2(3, 0, 0), "is qcow2, not raw"),
            ("raw", b"KDMV....".to_vec(), "is vmdk, not raw"),
            ("iso", b"no file system".to_vec(), "not an ISO"),
        ] {
            let id = shelf.make(ANNA, json!({"disk_format": format})).await;
            let reply = shelf.put(ANNA, &id, data).await;
            assert_eq!(reply.status, 415, "{format} {words}");
            let message = reply.body["message"].as_str().unwrap();
            assert!(message.contains(words), "{message}");
            assert_eq!(shelf.status(&id).await, "queued");
            assert_eq!(shelf.files(), 0);
        }
        let id = shelf.make(ANNA, json!({"disk_format": "qcow2"})).await;
        assert_eq!(shelf.put(ANNA, &id, qcow2(3, 0, 0)).await.status, 204);
        let image = shelf.get(ANNA, &format!("/v2/images/{id}")).await.body;
        assert_eq!((&image["size"], &image["virtual_size"]), (&json!(512), &json!(5_u64 << 30)));
        let mut iso = vec![0; 0x9000];
        iso[0x8001..0x8006].copy_from_slice(b"CD001");
        let id = shelf.make(ANNA, json!({"disk_format": "iso"})).await;
        assert_eq!(shelf.put(ANNA, &id, iso).await.status, 204);
    }
}

#[tokio::test]
async fn an_upload_needs_a_format_a_content_type_and_space() {
    for shelf in shelves().await {
        let bare = shelf.make(ANNA, json!({"disk_format": null})).await;
        assert_eq!(shelf.put(ANNA, &bare, "x").await.status, 400);
        let id = shelf.make(ANNA, json!({})).await;
        let path = format!("/v2/images/{id}/file");
        let reply = shelf.call(ANNA, "PUT", &path, "application/json", "{}").await;
        assert_eq!(reply.status, 415);
        assert_eq!(shelf.put(ANNA, &id, vec![0; (1 << 20) + 1]).await.status, 413);
        assert_eq!(shelf.status(&id).await, "queued");
        assert_eq!(shelf.files(), 0);
        assert_eq!(shelf.put(ANNA, &id, vec![0; 1 << 20]).await.status, 204);
        let missing = uuid::Uuid::new_v4().to_string();
        assert_eq!(shelf.put(ADMIN, &missing, "x").await.status, 404);
        assert_eq!(shelf.files(), 1);
    }
}

#[tokio::test]
async fn the_announced_size_must_be_the_size_of_the_data() {
    const SIZE: &str = "x-openstack-image-size";
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({})).await;
        for (name, announced, words) in [
            (SIZE, "3", "Size exceeds: expected 3 bytes, got 4 bytes"),
            (SIZE, "5", "Size mismatch: expected 5 bytes, got 4 bytes"),
            (SIZE, "many", "Invalid or missing image size in request headers."),
            (SIZE, "-4", "Invalid or missing image size in request headers."),
            ("content-length", "5", "Size mismatch: expected 5 bytes, got 4 bytes"),
        ] {
            let reply = shelf.put_with(&id, (name, announced), "data").await;
            assert_eq!(reply.status, 400, "{name} {announced}");
            assert_eq!(reply.body["message"], words);
            assert_eq!((shelf.status(&id).await.as_str(), shelf.files()), ("queued", 0));
        }
        // More than image_size_cap.
        assert_eq!(shelf.put_with(&id, (SIZE, "1048577"), "data").await.status, 413);
        for (name, announced) in [(SIZE, "4"), (SIZE, "0"), ("content-length", "4")] {
            let id = shelf.make(ANNA, json!({})).await;
            assert_eq!(shelf.put_with(&id, (name, announced), "data").await.status, 204);
            assert_eq!(shelf.get(ANNA, &format!("/v2/images/{id}/file")).await.bytes, b"data");
        }
    }
}

/// Waits until the image has the status.
async fn until(shelf: &Shelf, id: &str, status: &str) {
    for _ in 0..500 {
        if shelf.status(id).await == status {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("image {id} is {}, not {status}", shelf.status(id).await);
}

#[tokio::test]
async fn one_of_two_uploads_succeeds_and_an_interrupted_one_leaves_nothing() {
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({})).await;
        let (mut sender, body) = Channel::<Bytes, std::io::Error>::new(4);
        let slow = shelf.put(ANNA, &id, Body::new(body));
        let rest = async {
            sender.send_data(Bytes::from_static(b"half")).await.unwrap();
            until(&shelf, &id, "saving").await;
            let second = shelf.put(ANNA, &id, "whole").await;
            let again = Images::open(shelf.store.clone(), &shelf.directory).await.unwrap();
            drop(again);
            let untouched = (shelf.status(&id).await, shelf.files());
            sender.abort(std::io::Error::other("the client disconnected"));
            (second.status, untouched)
        };
        let (first, (second, untouched)) = tokio::join!(slow, rest);
        assert_eq!((first.status.as_u16(), second.as_u16()), (400, 409));
        assert_eq!(untouched, ("saving".to_owned(), 1), "another start does not end an upload");
        assert_eq!((shelf.status(&id).await.as_str(), shelf.files()), ("queued", 0));
        assert_eq!(shelf.put(ANNA, &id, "whole").await.status, 204);
    }
}

#[tokio::test]
async fn an_image_deleted_during_its_upload_leaves_no_file() {
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({})).await;
        let (mut sender, body) = Channel::<Bytes, std::io::Error>::new(4);
        let slow = shelf.put(ANNA, &id, Body::new(body));
        let rest = async {
            sender.send_data(Bytes::from_static(b"half")).await.unwrap();
            until(&shelf, &id, "saving").await;
            let deleted = shelf.delete(ANNA, &id).await;
            drop(sender);
            deleted.status
        };
        let (first, deleted) = tokio::join!(slow, rest);
        assert_eq!((first.status.as_u16(), deleted.as_u16(), shelf.files()), (410, 204, 0));
    }
}

#[tokio::test]
async fn an_upload_whose_client_disconnects_is_completed_or_reset() {
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({})).await;
        let (mut sender, body) = Channel::<Bytes, std::io::Error>::new(4);
        sender.send_data(Bytes::from_static(b"half")).await.unwrap();
        {
            let slow = shelf.put(ANNA, &id, Body::new(body));
            tokio::select! {
                _ = slow => panic!("the upload continues"),
                () = until(&shelf, &id, "saving") => {}
            }
        }
        sender.abort(std::io::Error::other("reset"));
        until(&shelf, &id, "queued").await;
        let mut files = shelf.files();
        for _ in 0..100 {
            if files == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            files = shelf.files();
        }
        assert_eq!(files, 0);
    }
}

#[tokio::test]
async fn a_start_recovers_from_a_crash() {
    for shelf in shelves().await {
        let active = shelf.make(ANNA, json!({})).await;
        shelf.put(ANNA, &active, "data").await;
        let dead = shelf.make(ANNA, json!({})).await;
        let name = format!("{dead}.{}", uuid::Uuid::new_v4().simple());
        std::fs::write(shelf.directory.join(&name), "half").unwrap();
        let (key, data) = (dead.clone(), name.clone());
        let sql = "UPDATE images SET status = 'saving', data = ?2 WHERE id = ?1";
        let wrote: Result<u64, kilonova_store::Error> = shelf
            .store
            .write(move |tx| tx.execute(sql, kilonova_store::params![&key, &data]))
            .await;
        assert_eq!(wrote.unwrap(), 1);
        let orphan = format!("{}.{}", uuid::Uuid::new_v4(), uuid::Uuid::new_v4().simple());
        std::fs::write(shelf.directory.join(orphan), "orphan").unwrap();
        std::fs::write(shelf.directory.join("notes.txt"), "a file of the operator").unwrap();

        let options = ImageOptions { leftover_age: Duration::ZERO, ..ImageOptions::default() };
        let again =
            Images::open_with(shelf.store.clone(), &shelf.directory, options).await.unwrap();
        assert_eq!(shelf.status(&dead).await, "queued");
        assert_eq!(shelf.images.sweep().await.unwrap(), Swept { young: 1, ..Swept::default() });
        assert_eq!(again.sweep().await.unwrap(), Swept { deleted: 1, ..Swept::default() });
        assert_eq!(shelf.files(), 2);
        let kept = shelf.get(ANNA, &format!("/v2/images/{active}/file")).await;
        assert_eq!(kept.bytes, b"data");
        assert_eq!(kept.body, Value::Null);
        assert_eq!(shelf.put(ANNA, &dead, "whole").await.status, 204);
    }
}
