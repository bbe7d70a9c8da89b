//! Several controllers with one database, and controllers that die.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::channel::Channel;
use kilonova_ids::ImageId;
use kilonova_image::{ImageOptions, Swept};
use kilonova_store::testing::{CrashPlan, Death};
use serde_json::json;
use tokio::time::Instant;

use crate::shelf::{ANNA, Shelf, shelves, shelves_of_all_stores};

/// The time between two checks of the loop that ends dead uploads.
const CHECK: Duration = Duration::from_secs(15);

/// Options with the same stores, with sweeps that delete data of any age.
fn at_once(shelf: &Shelf) -> ImageOptions {
    let stores = shelf.options.stores.clone();
    ImageOptions { leftover_age: Duration::ZERO, stores, ..ImageOptions::default() }
}

/// Another controller with the same database and the same stores.
pub async fn beside(shelf: &Shelf) -> Shelf {
    Shelf::open(shelf.store.clone(), shelf.directory.clone(), at_once(shelf)).await
}

/// True if a sweep finds nothing.
pub async fn is_clean(shelf: &Shelf) -> bool {
    let swept = beside(shelf).await.images.sweep().await.unwrap();
    swept == Swept::default()
}

pub fn file_of(id: &str) -> String {
    format!("/v2/images/{id}/file")
}

/// Waits until the image has the status.
pub async fn until(shelf: &Shelf, id: &str, status: &str) {
    for _ in 0..3000 {
        if shelf.status(id).await == status {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("image {id} is {}, not {status}", shelf.status(id).await);
}

/// An upload that stalls at a controller that is then killed.
async fn killed_upload(shelf: &Shelf, id: &str) {
    let died = Arc::new(beside(shelf).await);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (mut sender, body) = Channel::<Bytes, std::io::Error>::new(4);
    let (own, image) = (Arc::clone(&died), id.to_owned());
    runtime.spawn(async move { own.put(ANNA, &image, Body::new(body)).await });
    sender.send_data(Bytes::from(vec![7; 600_000])).await.unwrap();
    until(shelf, id, "saving").await;
    // The object is written after the row.
    while shelf.files() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The client's connection outlives the controller. Otherwise the controller would notice that the
    // connection ends, and reset the image.
    let gone = move || runtime.shutdown_timeout(Duration::from_secs(30));
    tokio::task::spawn_blocking(gone).await.unwrap();
    drop(sender);
}

#[tokio::test]
async fn any_controller_reads_and_deletes_what_another_received() {
    for shelf in shelves_of_all_stores().await {
        let other = beside(&shelf).await;
        let id = shelf.make(ANNA, json!({})).await;
        assert_eq!(shelf.put(ANNA, &id, "data").await.status, 204);
        assert_eq!(other.get(ANNA, &file_of(&id)).await.bytes, b"data");
        let image: ImageId = id.parse().unwrap();
        assert_eq!(other.images.read(image, 1, 2).await.unwrap().bytes, b"at");
        assert_eq!(other.delete(ANNA, &id).await.status, 204);
        assert_eq!(shelf.get(ANNA, &file_of(&id)).await.status, 404);
        assert!(is_clean(&shelf).await);
    }
}

#[tokio::test]
async fn a_controller_without_the_directory_answers_503() {
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({})).await;
        assert_eq!(shelf.put(ANNA, &id, "data").await.status, 204);
        let directory: PathBuf = shelf.directory.join("of-another-machine");
        let other = Shelf::open(shelf.store.clone(), directory, at_once(&shelf)).await;
        let reply = other.get(ANNA, &file_of(&id)).await;
        assert_eq!(
            (reply.status.as_u16(), &reply.headers["retry-after"]),
            (503, &"10".parse().unwrap())
        );
        let message = reply.body["message"].as_str().unwrap();
        assert!(message.contains("not available here") && !message.contains('/'), "{message}");
        let refused = other.images.read(id.parse().unwrap(), 0, 10).await.unwrap_err().to_string();
        assert!(refused.contains("filesystem_store_datadir"), "{refused}");
        // Its sweeps do not delete data that it cannot see.
        assert_eq!(other.images.sweep().await.unwrap(), Swept::default());
        assert_eq!(shelf.get(ANNA, &file_of(&id)).await.bytes, b"data");
        // A deletion there leaves the file for the sweep of the machine that has it.
        assert_eq!(other.delete(ANNA, &id).await.status, 204);
        let same = beside(&shelf).await;
        assert_eq!(same.images.sweep().await.unwrap(), Swept { deleted: 1, ..Swept::default() });
    }
}

#[tokio::test]
async fn an_upload_whose_controller_dies_leaves_nothing_visible() {
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({})).await;
        killed_upload(&shelf, &id).await;
        assert_eq!(shelf.get(ANNA, &file_of(&id)).await.status, 204);
        assert_eq!(shelf.put(ANNA, &id, "again").await.status, 409);
        // The released lock proves to this machine that no process writes the file.
        while shelf.images.end_dead_uploads().await.unwrap() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!((shelf.status(&id).await.as_str(), shelf.files()), ("queued", 0));
        assert_eq!(shelf.put(ANNA, &id, "again").await.status, 204);
        assert_eq!(shelf.get(ANNA, &file_of(&id)).await.bytes, b"again");
    }
}

async fn set_uploader(shelf: &Shelf, id: &str) {
    let id = id.to_owned();
    let sql = "UPDATE images SET uploader = 'another machine' WHERE id = ?1";
    let wrote: Result<u64, kilonova_store::Error> =
        shelf.store.write(move |tx| tx.execute(sql, kilonova_store::params![&id])).await;
    assert_eq!(wrote.unwrap(), 1);
}

#[tokio::test]
async fn another_machine_waits_for_two_minutes_of_silence() {
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({})).await;
        killed_upload(&shelf, &id).await;
        set_uploader(&shelf, &id).await;
        let watcher = beside(&shelf).await;
        let mut now = Instant::now();
        let mut checks = 0;
        while watcher.images.end_dead_uploads_at(now).await.unwrap() == 0 {
            checks += 1;
            now += CHECK;
            assert_eq!(watcher.status(&id).await, "saving");
        }
        assert!((7..=9).contains(&checks), "{checks} checks");
        assert_eq!(watcher.status(&id).await, "queued");
    }
}

#[tokio::test]
async fn an_upload_in_progress_elsewhere_is_left_alone() {
    for shelf in shelves_of_all_stores().await {
        let id = shelf.make(ANNA, json!({})).await;
        let (mut sender, body) = Channel::<Bytes, std::io::Error>::new(4);
        let upload = shelf.put(ANNA, &id, Body::new(body));
        let rest = async {
            sender.send_data(Bytes::from(vec![7; 300_000])).await.unwrap();
            until(&shelf, &id, "saving").await;
            set_uploader(&shelf, &id).await;
            let watcher = beside(&shelf).await;
            // A long pause between two checks does not count as silence.
            let mut now = Instant::now();
            for _ in 0..3 {
                assert_eq!(watcher.images.end_dead_uploads_at(now).await.unwrap(), 0);
                now += Duration::from_secs(3600);
            }
            // Heartbeats between the checks.
            for _ in 0..20 {
                let key = id.clone();
                let sql = "UPDATE images SET sign = sign + 1 WHERE id = ?1";
                let signed: Result<u64, kilonova_store::Error> = shelf
                    .store
                    .write(move |tx| tx.execute(sql, kilonova_store::params![&key]))
                    .await;
                assert_eq!(signed.unwrap(), 1);
                assert_eq!(watcher.images.end_dead_uploads_at(now).await.unwrap(), 0);
                now += CHECK;
            }
            // The sweep keeps its file regardless of age and lock, because a row names it.
            assert_eq!(watcher.images.sweep().await.unwrap(), Swept::default());
            drop(sender);
        };
        let (reply, ()) = tokio::join!(upload, rest);
        assert_eq!(reply.status, 204);
        assert_eq!(shelf.get(ANNA, &file_of(&id)).await.bytes.len(), 300_000);
    }
}

#[tokio::test]
async fn an_upload_that_was_given_up_deletes_its_own_object_only() {
    for shelf in shelves_of_all_stores().await {
        let id = shelf.make(ANNA, json!({})).await;
        let (mut sender, body) = Channel::<Bytes, std::io::Error>::new(4);
        let first = shelf.put(ANNA, &id, Body::new(body));
        let rest = async {
            sender.send_data(Bytes::from(vec![7; 300_000])).await.unwrap();
            until(&shelf, &id, "saving").await;
            set_uploader(&shelf, &id).await;
            let watcher = beside(&shelf).await;
            let mut now = Instant::now();
            // The first uploader is stuck, so it writes no heartbeat.
            while watcher.images.end_dead_uploads_at(now).await.unwrap() == 0 {
                now += CHECK;
            }
            assert_eq!(watcher.put(ANNA, &id, "second").await.status, 204);
            drop(sender);
        };
        let (reply, ()) = tokio::join!(first, rest);
        assert_eq!(reply.status, 410, "{}", reply.body);
        assert_eq!(shelf.get(ANNA, &file_of(&id)).await.bytes, b"second");
        assert!(is_clean(&shelf).await);
    }
}

#[tokio::test]
async fn a_snapshot_that_a_host_sends_again_supersedes_the_first() {
    for shelf in shelves().await {
        let id = shelf.make(ANNA, json!({})).await;
        killed_upload(&shelf, &id).await;
        let image: ImageId = id.parse().unwrap();
        let other = beside(&shelf).await;
        let sent = other.images.receive_snapshot(image, "raw", "host-1", || Body::from("snapshot"));
        sent.await.unwrap();
        assert_eq!(shelf.get(ANNA, &file_of(&id)).await.bytes, b"snapshot");
        // The lock is released once the killed controller has ended.
        while shelf.files() > 1 {
            other.images.sweep().await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(shelf.get(ANNA, &file_of(&id)).await.bytes, b"snapshot");
        assert_eq!(shelf.files(), 1);
    }
}

#[tokio::test]
async fn a_controller_that_dies_at_a_write_leaves_a_whole_image_or_a_queued_one() {
    for shelf in shelves_of_all_stores().await {
        for at in 0..3 {
            for death in [Death::BeforeCommit, Death::AfterCommit] {
                let id = shelf.make(ANNA, json!({})).await;
                let plan = CrashPlan::at(at, death);
                let store = shelf.store.with_crash_plan(plan.clone());
                let dying = Shelf::open(store, shelf.directory.clone(), at_once(&shelf)).await;
                let reply = dying.put(ANNA, &id, "first").await;
                // The last write is the deletion below.
                if at < 2 {
                    assert!(plan.is_dead() && reply.status.is_server_error(), "{}", reply.body);
                } else {
                    assert_eq!(reply.status, 204);
                    dying.delete(ANNA, &id).await;
                    assert!(plan.is_dead());
                }
                drop(dying);
                let next = beside(&shelf).await;
                let mut now = Instant::now();
                for _ in 0..10 {
                    next.images.end_dead_uploads_at(now).await.unwrap();
                    now += CHECK;
                }
                next.images.sweep().await.unwrap();
                let kept = match (at, death) {
                    (0, _) | (1, Death::BeforeCommit) => "again",
                    (1, Death::AfterCommit) | (_, Death::BeforeCommit) => "first",
                    (_, Death::AfterCommit) => "",
                };
                let what = format!("write {at}, {death:?}");
                match kept {
                    "again" => assert_eq!(next.put(ANNA, &id, "again").await.status, 204, "{what}"),
                    "first" => assert_eq!(next.put(ANNA, &id, "again").await.status, 409, "{what}"),
                    _ => assert_eq!(next.status(&id).await, "gone", "{what}"),
                }
                if !kept.is_empty() {
                    let reply = next.get(ANNA, &file_of(&id)).await;
                    assert_eq!(reply.bytes, kept.as_bytes(), "{what}");
                    assert_eq!(next.delete(ANNA, &id).await.status, 204, "{what}");
                }
                assert!(is_clean(&next).await, "{what}");
            }
        }
    }
}

#[tokio::test]
async fn bytes_that_are_not_the_images_end_in_a_broken_transfer() {
    for shelf in shelves().await {
        for (place, length) in [(700_000, 1_000_000), (0, 999_999)] {
            let id = shelf.make(ANNA, json!({})).await;
            assert_eq!(shelf.put(ANNA, &id, vec![7; 1_000_000]).await.status, 204);
            let files = std::fs::read_dir(&shelf.directory).unwrap();
            let path = files
                .map(|entry| entry.unwrap().path())
                .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&id));
            let mut bytes = vec![7; length];
            bytes[place] = 8;
            std::fs::write(path.unwrap(), bytes).unwrap();
            let received = shelf.receive(ANNA, &file_of(&id)).await;
            assert!(received.is_err(), "{received:?}");
        }
    }
}
