//! Slow clients, and transfers beyond the limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::Request;
use http_body_util::BodyExt as _;
use http_body_util::channel::{Channel, Sender};
use kilonova_ids::ImageId;
use kilonova_image::{Error, ImageOptions, Rate, TransferLimit};
use serde_json::json;
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

use crate::shelf::{ADMIN, ANNA, BEN, Reply, Shelf, shelves_with};

type Slow = (Sender<Bytes, std::io::Error>, JoinHandle<Reply>);

/// An upload that began and stalls.
async fn begin(shelf: &Arc<Shelf>, who: &'static str, id: &str) -> Slow {
    let (mut sender, body) = Channel::<Bytes, std::io::Error>::new(1);
    let (own, image) = (Arc::clone(shelf), id.to_owned());
    let upload = tokio::spawn(async move { own.put(who, &image, Body::new(body)).await });
    sender.send_data(Bytes::from_static(b"x")).await.unwrap();
    (sender, upload)
}

async fn until(shelf: &Shelf, id: &str, status: &str) {
    for _ in 0..1000 {
        if shelf.status(id).await == status {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("image {id} is {}, not {status}", shelf.status(id).await);
}

#[tokio::test]
async fn forty_slow_uploads_hold_no_thread() {
    let uploads = TransferLimit { total: 64, each: 64 };
    for shelf in shelves_with(ImageOptions { uploads, ..ImageOptions::default() }).await {
        let shelf = Arc::new(shelf);
        let mut slow = Vec::new();
        let mut ids = Vec::new();
        for _ in 0..40 {
            let id = shelf.make(ANNA, json!({})).await;
            slow.push(begin(&shelf, ANNA, &id).await);
            ids.push(id);
        }
        for id in &ids {
            until(&shelf, id, "saving").await;
        }
        let begun = Instant::now();
        let list = shelf.get(BEN, "/v2/images").await;
        assert_eq!(list.status, 200);
        let id = shelf.make(BEN, json!({})).await;
        assert_eq!(shelf.put(BEN, &id, vec![7; 3_000_000]).await.status, 204);
        let file = shelf.get(BEN, &format!("/v2/images/{id}/file")).await;
        assert!(file.bytes == vec![7; 3_000_000]);
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        for ((mut sender, upload), id) in slow.into_iter().zip(ids) {
            sender.send_data(Bytes::from_static(b"yz")).await.unwrap();
            drop(sender);
            assert_eq!(upload.await.unwrap().status, 204);
            let file = shelf.get(ANNA, &format!("/v2/images/{id}/file")).await;
            assert_eq!(file.bytes, b"xyz");
        }
    }
}

#[tokio::test]
async fn an_upload_beyond_the_limit_is_refused_with_503() {
    let uploads = TransferLimit { total: 3, each: 2 };
    for shelf in shelves_with(ImageOptions { uploads, ..ImageOptions::default() }).await {
        let shelf = Arc::new(shelf);
        let mut ids = Vec::new();
        for who in [ANNA, ANNA, ANNA, BEN, ADMIN] {
            ids.push(shelf.make(who, json!({})).await);
        }
        let first = begin(&shelf, ANNA, &ids[0]).await;
        let second = begin(&shelf, ANNA, &ids[1]).await;
        until(&shelf, &ids[0], "saving").await;
        until(&shelf, &ids[1], "saving").await;
        let refused = shelf.put(ANNA, &ids[2], "data").await;
        assert_eq!(refused.status, 503);
        assert_eq!(refused.headers["retry-after"], "10");
        let third = begin(&shelf, BEN, &ids[3]).await;
        until(&shelf, &ids[3], "saving").await;
        assert_eq!(shelf.put(ADMIN, &ids[4], "data").await.status, 503);
        assert_eq!(shelf.status(&ids[4]).await, "queued");
        for (sender, upload) in [first, second, third] {
            sender.abort(std::io::Error::other("gone"));
            assert_eq!(upload.await.unwrap().status, 400);
        }
        assert_eq!(shelf.put(ANNA, &ids[2], "data").await.status, 204);
        assert_eq!(shelf.put(ADMIN, &ids[4], "data").await.status, 204);
    }
}

/// 1000 bytes per second.
const RATE: Rate = Rate { minimum: 1000, window: Duration::from_secs(1) };

#[tokio::test]
async fn an_upload_below_the_least_rate_is_aborted() {
    for shelf in shelves_with(ImageOptions { rate: RATE, ..ImageOptions::default() }).await {
        let shelf = Arc::new(shelf);
        let id = shelf.make(ANNA, json!({})).await;
        let (mut sender, upload) = begin(&shelf, ANNA, &id).await;
        let trickle = tokio::spawn(async move {
            while sender.send_data(Bytes::from_static(b"x")).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let reply = tokio::time::timeout(Duration::from_secs(10), upload).await.unwrap().unwrap();
        assert_eq!(reply.status, 408, "{}", reply.body);
        assert_eq!((shelf.status(&id).await.as_str(), shelf.files()), ("queued", 0));
        trickle.await.unwrap();

        let (mut sender, upload) = begin(&shelf, ANNA, &id).await;
        for _ in 0..30 {
            sender.send_data(vec![b'x'; 200].into()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        drop(sender);
        assert_eq!(upload.await.unwrap().status, 204);
    }
}

#[tokio::test]
async fn a_stalled_download_is_aborted_and_releases_its_slot() {
    let downloads = TransferLimit { total: 1, each: 1 };
    for shelf in
        shelves_with(ImageOptions { rate: RATE, downloads, ..ImageOptions::default() }).await
    {
        let id = shelf.make(ANNA, json!({})).await;
        assert_eq!(shelf.put(ANNA, &id, vec![7; 1_000_000]).await.status, 204);
        let path = format!("/v2/images/{id}/file");
        let request = Request::get(format!("/image{path}")).header("x-auth-token", ANNA);
        let request = request.body(Body::empty()).unwrap();
        let slow = shelf.router.clone().oneshot(request).await.unwrap();
        assert_eq!(slow.status(), 200);
        let refused = shelf.get(BEN, &format!("/v2/images/{}/file", uuid::Uuid::new_v4())).await;
        assert_eq!(refused.status, 404);
        assert_eq!(shelf.get(ANNA, &path).await.status, 503);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(shelf.get(ANNA, &path).await.bytes.len(), 1_000_000);
        assert!(slow.into_body().collect().await.is_err(), "the download is aborted");
    }
}

#[tokio::test]
async fn snapshots_of_hosts_have_slots_of_their_own() {
    let (uploads, snapshots) =
        (TransferLimit { total: 1, each: 1 }, TransferLimit { total: 2, each: 1 });
    for shelf in shelves_with(ImageOptions { uploads, snapshots, ..ImageOptions::default() }).await
    {
        let shelf = Arc::new(shelf);
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(shelf.make(ANNA, json!({})).await);
        }
        let slow = begin(&shelf, ANNA, &ids[0]).await;
        until(&shelf, &ids[0], "saving").await;
        let (sender, body) = Channel::<Bytes, std::io::Error>::new(1);
        let (images, id) = (shelf.images.clone(), ids[1].parse::<ImageId>().unwrap());
        let first = tokio::spawn(async move {
            images.receive_snapshot(id, "raw", "host-1", || Body::new(body)).await
        });
        until(&shelf, &ids[1], "saving").await;
        let id = ids[2].parse::<ImageId>().unwrap();
        let refused =
            shelf.images.receive_snapshot(id, "raw", "host-1", || Body::from("data")).await;
        assert!(matches!(refused, Err(Error::Busy(_))), "{refused:?}");
        shelf.images.receive_snapshot(id, "raw", "host-2", || Body::from("data")).await.unwrap();
        assert_eq!(shelf.status(&ids[2]).await, "active");
        drop((sender, slow.0));
        first.await.unwrap().unwrap();
        assert_eq!(slow.1.await.unwrap().status, 204);
    }
}
