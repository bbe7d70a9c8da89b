//! Clients that disconnect, are slow, or upload the same image concurrently, with each store.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::Request;
use http_body_util::BodyExt as _;
use http_body_util::channel::Channel;
use kilonova_image::{ImageOptions, Rate, TransferLimit};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt as _;

use crate::controllers::{beside, file_of, is_clean, until};
use crate::proxy::{USUAL, behind_proxies_with};
use crate::shelf::{ANNA, Shelf, bytes, shelves_of_all_stores, shelves_with};

const MIB: usize = 1 << 20;

/// A controller with files and one with a bucket on each database.
async fn all_with(options: ImageOptions) -> Vec<Arc<Shelf>> {
    let mut all = shelves_with(options.clone()).await;
    all.extend(behind_proxies_with(USUAL, options).await.into_iter().map(|(shelf, _)| shelf));
    all.into_iter().map(Arc::new).collect()
}

/// Waits until a sweep finds nothing: the data of a failed upload is deleted after the row is reset.
async fn until_clean(shelf: &Shelf) {
    for _ in 0..500 {
        if is_clean(shelf).await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("data of the failed upload remains");
}

async fn serve(shelf: &Shelf) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = shelf.router.clone();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

#[tokio::test]
async fn a_connection_that_ends_in_the_middle_of_an_upload_leaves_nothing() {
    for shelf in all_with(ImageOptions::default()).await {
        let address = serve(&shelf).await;
        for framing in ["Content-Length: 20971520", "Transfer-Encoding: chunked"] {
            let id = shelf.make(ANNA, json!({})).await;
            let mut client = TcpStream::connect(address).await.unwrap();
            let head = format!(
                "PUT /image/v2/images/{id}/file HTTP/1.1\r\nHost: cloud.example\r\nX-Auth-Token: {ANNA}\r\n\
                 Content-Type: application/octet-stream\r\n{framing}\r\n\r\n"
            );
            client.write_all(head.as_bytes()).await.unwrap();
            // More than one part of a multipart upload.
            for _ in 0..12 {
                let piece = vec![7; MIB];
                if framing.ends_with("chunked") {
                    client.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).await.unwrap();
                }
                client.write_all(&piece).await.unwrap();
                if framing.ends_with("chunked") {
                    client.write_all(b"\r\n").await.unwrap();
                }
            }
            until(&shelf, &id, "saving").await;
            drop(client);
            until(&shelf, &id, "queued").await;
            until_clean(&shelf).await;
            assert_eq!(shelf.get(ANNA, &file_of(&id)).await.status, 204);
            assert_eq!(shelf.put(ANNA, &id, "again").await.status, 204);
            assert_eq!(shelf.get(ANNA, &file_of(&id)).await.bytes, b"again");
        }
    }
}

/// 1000 bytes per second.
const RATE: Rate = Rate { minimum: 1000, window: Duration::from_secs(1) };

#[tokio::test]
async fn an_upload_that_becomes_slow_ends_with_408_and_leaves_nothing() {
    for shelf in all_with(ImageOptions { rate: RATE, ..ImageOptions::default() }).await {
        let id = shelf.make(ANNA, json!({})).await;
        let (mut sender, body) = Channel::<Bytes, std::io::Error>::new(1);
        let sending = async move {
            for _ in 0..12 {
                sender.send_data(Bytes::from(vec![7; MIB])).await.unwrap();
            }
            while sender.send_data(Bytes::from_static(b"x")).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let both = async { tokio::join!(shelf.put(ANNA, &id, Body::new(body)), sending) };
        let (reply, ()) = tokio::time::timeout(Duration::from_secs(60), both).await.unwrap();
        assert_eq!(reply.status, 408, "{}", reply.body);
        assert_eq!(shelf.status(&id).await, "queued");
        until_clean(&shelf).await;
    }
}

#[tokio::test]
async fn a_download_that_stalls_is_aborted_and_others_go_on() {
    let downloads = TransferLimit { total: 1, each: 1 };
    for shelf in all_with(ImageOptions { rate: RATE, downloads, ..ImageOptions::default() }).await {
        let (id, data) = (shelf.make(ANNA, json!({})).await, bytes(12 * MIB));
        assert_eq!(shelf.put(ANNA, &id, data.clone()).await.status, 204);
        let path = format!("/image{}", file_of(&id));
        let request = Request::get(path).header("x-auth-token", ANNA).body(Body::empty()).unwrap();
        let mut slow = shelf.router.clone().oneshot(request).await.unwrap().into_body();
        slow.frame().await.unwrap().unwrap();
        assert_eq!(shelf.get(ANNA, &file_of(&id)).await.status, 503, "the only slot is taken");
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(shelf.receive(ANNA, &file_of(&id)).await.unwrap() == data);
        assert!(slow.collect().await.is_err(), "the stalled download is aborted");
    }
}

#[tokio::test]
async fn of_two_controllers_that_receive_the_same_image_at_once_one_succeeds() {
    for shelf in shelves_of_all_stores().await {
        let other = beside(&shelf).await;
        for round in 0..8 {
            let id = shelf.make(ANNA, json!({})).await;
            let sent = [vec![1; 400_000 + round], vec![2; 400_000 + round]];
            let (one, two) = tokio::join!(
                shelf.put(ANNA, &id, sent[0].clone()),
                other.put(ANNA, &id, sent[1].clone())
            );
            let winner = match (one.status.as_u16(), two.status.as_u16()) {
                (204, 409) => 0,
                (409, 204) => 1,
                statuses => panic!("{statuses:?}: {} {}", one.body, two.body),
            };
            for controller in [&shelf, &other] {
                let received = controller.receive(ANNA, &file_of(&id)).await;
                assert!(received.unwrap() == sent[winner], "round {round}");
            }
        }
        assert!(is_clean(&shelf).await);
    }
}
