//! The file store on a disk that is full, and on one that became read-only.
//!
//! The test runs itself in a mount namespace with a small file system of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use kilonova_image::ImageOptions;
use serde_json::json;

use crate::controllers::file_of;
use crate::shelf::{ANNA, Shelf, shelves_with};

/// Set to the small file system in the namespace.
const DISK: &str = "KILONOVA_TEST_SMALL_DISK";
const NAME: &str = "full_disk::a_disk_that_is_full_or_read_only_refuses_the_upload";
/// Mounts a file system at the first argument and runs the rest.
const MOUNT: &str = "mount -t tmpfs -o size=3m kilonova-test \"$1\" && shift && exec \"$@\"";

#[tokio::test]
async fn a_disk_that_is_full_or_read_only_refuses_the_upload() {
    match std::env::var_os(DISK) {
        Some(disk) => inside(&PathBuf::from(disk)).await,
        None => outside(),
    }
}

fn in_namespace(options: &[&str], disk: &Path, rest: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(options).args(["sh", "-c", MOUNT, "sh"]).arg(disk).args(rest).env(DISK, disk);
    command
}

fn outside() {
    let disk = tempfile::tempdir().unwrap();
    let ways: [&[&str]; 2] = [&["--mount"], &["--map-root-user", "--mount"]];
    let way = ways.into_iter().find(|way| {
        let tried = in_namespace(way, disk.path(), &["true"]).output();
        tried.is_ok_and(|done| done.status.success())
    });
    let Some(way) = way else {
        kilonova_testkit::skip("no file system can be mounted here, not even in a namespace");
        return;
    };
    let own = std::env::current_exe().unwrap();
    let rest = [own.to_str().unwrap(), "--exact", NAME, "--nocapture"];
    let done = in_namespace(way, disk.path(), &rest).output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && text.contains("1 passed"), "{text}");
}

async fn inside(disk: &Path) {
    for (number, shelf) in shelves_with(ImageOptions::default()).await.into_iter().enumerate() {
        let directory = disk.join(number.to_string());
        let shelf = Shelf::open(shelf.store.clone(), directory, ImageOptions::default()).await;
        let (large, small) = (shelf.make(ANNA, json!({})).await, shelf.make(ANNA, json!({})).await);
        let reply = shelf.put(ANNA, &large, vec![7; 5 << 20]).await;
        assert_eq!(reply.status, 507, "{}", reply.body);
        assert_eq!(reply.body["message"], "The storage for image data is full.");
        assert_eq!((shelf.status(&large).await.as_str(), shelf.files()), ("queued", 0));
        assert_eq!(shelf.get(ANNA, &file_of(&large)).await.status, 204);
        // The space is free again.
        assert_eq!(shelf.put(ANNA, &small, vec![7; 2 << 20]).await.status, 204);

        remount(disk, "ro");
        let reply = shelf.put(ANNA, &large, "data").await;
        assert_eq!(reply.status, 503, "{}", reply.body);
        assert_eq!(reply.headers["retry-after"], "10");
        let message = reply.body["message"].as_str().unwrap();
        assert_eq!(message, "The image store is unavailable. Try again later.");
        assert_eq!(shelf.status(&large).await, "queued");
        assert_eq!(shelf.get(ANNA, &file_of(&small)).await.bytes.len(), 2 << 20);

        remount(disk, "rw");
        assert_eq!(shelf.put(ANNA, &large, "data").await.status, 204);
        assert_eq!(shelf.get(ANNA, &file_of(&large)).await.bytes, b"data");
        assert_eq!(shelf.delete(ANNA, &small).await.status, 204);
        assert_eq!(shelf.files(), 1);
    }
}

fn remount(disk: &Path, mode: &str) {
    let options = format!("remount,{mode}");
    let done = Command::new("mount").args(["-o", &options]).arg(disk).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
