//! Image data in a bucket, and an object store that does not answer. The tests need the server that
//! `KILONOVA_TEST_S3` names.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::channel::Channel;
use kilonova_ids::ImageId;
use kilonova_image::{ImageOptions, StoreName, StoreOptions, Swept};
use serde_json::json;
use tokio::time::Instant;

use crate::controllers::{beside, file_of, is_clean, until};
use crate::proxy::{HANGS, PASSES, USUAL, behind_proxies};
use crate::shelf::{ANNA, Shelf, bytes};

const MIB: usize = 1 << 20;

#[tokio::test]
async fn large_and_small_images_are_read_whole_and_in_ranges() {
    for (shelf, _) in behind_proxies(USUAL).await {
        for length in [0, 1, 5 * MIB, 12 * MIB + 7] {
            let id = shelf.make(ANNA, json!({})).await;
            let data = bytes(length);
            assert_eq!(shelf.put(ANNA, &id, data.clone()).await.status, 204, "{length}");
            assert_eq!(shelf.files(), 0, "no file of this machine is used");
            assert!(shelf.receive(ANNA, &file_of(&id)).await.unwrap() == data, "{length}");
            let (image, mut read) = (id.parse::<ImageId>().unwrap(), Vec::new());
            loop {
                let range = shelf.images.read(image, read.len() as u64, 4 * MIB).await.unwrap();
                assert_eq!(range.size, length as u64);
                if range.bytes.is_empty() {
                    break;
                }
                read.extend(range.bytes);
            }
            assert!(read == data, "{length}");
            assert!(is_clean(&shelf).await);
            assert_eq!(shelf.delete(ANNA, &id).await.status, 204);
            assert!(is_clean(&shelf).await);
        }
    }
}

#[tokio::test]
async fn a_controller_without_the_first_ones_files_serves_what_is_in_the_bucket() {
    for (shelf, _) in behind_proxies(USUAL).await {
        let old = shelf.make(ANNA, json!({})).await;
        let files = StoreOptions { default: StoreName::File, ..shelf.options.stores.clone() };
        let options = ImageOptions { stores: files, ..ImageOptions::default() };
        let before = Shelf::open(shelf.store.clone(), shelf.directory.clone(), options).await;
        assert_eq!(before.put(ANNA, &old, "a file").await.status, 204);
        let new = shelf.make(ANNA, json!({})).await;
        assert_eq!(shelf.put(ANNA, &new, "an object").await.status, 204);
        // The store of each image is in its row, so another default changes nothing.
        for (id, data) in [(&old, "a file"), (&new, "an object")] {
            assert_eq!(shelf.get(ANNA, &file_of(id)).await.bytes, data.as_bytes());
            assert_eq!(before.get(ANNA, &file_of(id)).await.bytes, data.as_bytes());
        }
        let elsewhere = shelf.directory.join("of-another-machine");
        let stores = StoreOptions { files: false, ..shelf.options.stores.clone() };
        let options = ImageOptions { stores, ..ImageOptions::default() };
        let other = Shelf::open(shelf.store.clone(), elsewhere.clone(), options).await;
        assert_eq!(other.get(ANNA, &file_of(&new)).await.bytes, b"an object");
        assert_eq!(other.get(ANNA, &file_of(&old)).await.status, 503);
        let why = other.images.read(old.parse().unwrap(), 0, 1).await.unwrap_err().to_string();
        assert!(why.contains("add file to [glance_store] stores"), "{why}");
        assert!(!elsewhere.exists(), "a directory that is not configured is not created");
        let image: ImageId = shelf.make(ANNA, json!({})).await.parse().unwrap();
        let sent = other.images.receive_snapshot(image, "raw", "host-1", || Body::from("disk"));
        sent.await.unwrap();
        assert_eq!(shelf.images.read(image, 0, 10).await.unwrap().bytes, b"disk");
    }
}

#[tokio::test]
async fn an_upload_that_dies_leaves_parts_that_a_sweep_of_any_controller_deletes() {
    for (shelf, _) in behind_proxies(USUAL).await {
        let id = shelf.make(ANNA, json!({})).await;
        let died = beside(&shelf).await;
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (mut sender, body) = Channel::<Bytes, std::io::Error>::new(4);
        let image = id.clone();
        let upload = runtime.spawn(async move { died.put(ANNA, &image, Body::new(body)).await });
        for _ in 0..12 {
            sender.send_data(Bytes::from(vec![7; MIB])).await.unwrap();
        }
        let other = beside(&shelf).await;
        // A sweep does not delete the upload while a row names its object.
        until(&shelf, &id, "saving").await;
        assert_eq!(other.images.sweep().await.unwrap(), Swept::default());
        runtime.shutdown_background();
        assert!(upload.await.unwrap_err().is_cancelled());
        let mut now = Instant::now();
        while other.images.end_dead_uploads_at(now).await.unwrap() == 0 {
            now += Duration::from_secs(15);
            assert_eq!(shelf.get(ANNA, &file_of(&id)).await.status, 204);
        }
        assert_eq!(shelf.put(ANNA, &id, "again").await.status, 204);
        // Not every server reports the age of an unfinished upload.
        let swept = shelf.images.sweep().await.unwrap();
        assert_eq!(swept.deleted + swept.young, 1);
        assert_eq!(other.images.sweep().await.unwrap().deleted, swept.young);
        assert!(is_clean(&shelf).await);
        assert_eq!(shelf.get(ANNA, &file_of(&id)).await.bytes, b"again");
    }
}

#[tokio::test]
async fn refused_data_leaves_no_part_in_the_bucket() {
    for (shelf, _) in behind_proxies(USUAL).await {
        for length in [10, 12 * MIB] {
            let id = shelf.make(ANNA, json!({"disk_format": "iso"})).await;
            assert_eq!(shelf.put(ANNA, &id, bytes(length)).await.status, 415);
            assert_eq!(shelf.status(&id).await, "queued");
            assert!(is_clean(&shelf).await);
        }
        let id = shelf.make(ANNA, json!({})).await;
        let (mut sender, body) = Channel::<Bytes, std::io::Error>::new(16);
        for _ in 0..12 {
            sender.send_data(Bytes::from(vec![7; MIB])).await.unwrap();
        }
        sender.abort(std::io::Error::other("the client disconnected"));
        assert_eq!(shelf.put(ANNA, &id, Body::new(body)).await.status, 400);
        assert_eq!(shelf.status(&id).await, "queued");
        assert!(is_clean(&shelf).await);
    }
}

#[tokio::test]
async fn a_store_that_is_down_is_a_503_until_it_is_back() {
    for (shelf, proxy) in behind_proxies(USUAL).await {
        let (kept, id) = (shelf.make(ANNA, json!({})).await, shelf.make(ANNA, json!({})).await);
        assert_eq!(shelf.put(ANNA, &kept, "kept").await.status, 204);
        proxy.set(0);
        for reply in [
            shelf.put(ANNA, &id, "data").await,
            shelf.put(ANNA, &id, bytes(12 * MIB)).await,
            shelf.get(ANNA, &file_of(&kept)).await,
        ] {
            assert_eq!(reply.status, 503, "{}", reply.body);
            assert_eq!(reply.headers["retry-after"], "10");
            let message = reply.body["message"].as_str().unwrap();
            assert_eq!(message, "The image store is unavailable. Try again later.");
        }
        assert_eq!(shelf.status(&id).await, "queued");
        let host = shelf.images.read(kept.parse().unwrap(), 0, 10).await.unwrap_err();
        assert!(host.to_string().starts_with("S3: "), "{host}");
        // The row is deleted; the object stays until a sweep.
        assert_eq!(shelf.delete(ANNA, &kept).await.status, 204);
        assert!(shelf.images.sweep().await.is_err());
        proxy.set(PASSES);
        assert_eq!(shelf.put(ANNA, &id, "data").await.status, 204);
        assert_eq!(shelf.get(ANNA, &file_of(&id)).await.bytes, b"data");
        assert_eq!(beside(&shelf).await.images.sweep().await.unwrap().deleted, 1);
        assert!(is_clean(&shelf).await);
    }
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_a_503() {
    for (shelf, proxy) in behind_proxies(Duration::from_secs(1)).await {
        let (kept, id) = (shelf.make(ANNA, json!({})).await, shelf.make(ANNA, json!({})).await);
        assert_eq!(shelf.put(ANNA, &kept, "kept").await.status, 204);
        proxy.set(HANGS);
        assert_eq!(shelf.get(ANNA, &file_of(&kept)).await.status, 503);
        assert_eq!(shelf.put(ANNA, &id, "data").await.status, 503);
        proxy.set(PASSES);
        assert_eq!(shelf.put(ANNA, &id, "data").await.status, 204);
    }
}

#[tokio::test]
async fn a_connection_that_is_cut_in_a_download_is_resumed_or_the_transfer_is_broken() {
    for (shelf, proxy) in behind_proxies(USUAL).await {
        let id = shelf.make(ANNA, json!({})).await;
        let data = bytes(12 * MIB);
        assert_eq!(shelf.put(ANNA, &id, data.clone()).await.status, 204);
        // A request survives a few cuts, because it is retried.
        proxy.set(5 * MIB as u64);
        assert!(shelf.receive(ANNA, &file_of(&id)).await.unwrap() == data);
        proxy.set(MIB as u64);
        let broken = shelf.receive(ANNA, &file_of(&id)).await.unwrap_err();
        assert!(!broken.starts_with("12"), "{broken}");
        proxy.set(PASSES);
        assert!(shelf.receive(ANNA, &file_of(&id)).await.unwrap() == data);
    }
}
