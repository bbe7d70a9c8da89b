//! One download for all guests of an image; removal of unused images.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::host::{Host, guest, have, rebuilt};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guests_of_one_image_wait_for_one_download() {
    if !have(&["qemu-img", "prlimit"]) {
        return;
    }
    let host = Host::new();
    let image = host.image(vec![7; 1 << 20], "raw");
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let (disks, want) = (host.disks.clone(), guest(image));
            tokio::spawn(async move { disks.prepare(&want).await })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends").expect("the disks are created");
    }
    assert_eq!(host.table.begun.load(Ordering::Relaxed), 1);
    assert_eq!(host.cached(), [format!("{image}.raw")]);
}

#[tokio::test]
async fn old_unused_images_are_removed() {
    if !have(&["qemu-img", "prlimit"]) {
        return;
    }
    let age = Duration::from_secs(3600);
    let host = Host::with(|config| config.remove_unused_original_minimum_age = age);
    let (one, two) = (host.image(vec![1; 512], "raw"), host.image(vec![2; 512], "raw"));
    let want = guest(one);
    host.disks.prepare(&want).await.expect("the disks are created");
    let want = rebuilt(&want, two);
    host.disks.prepare(&want).await.expect("the disks are recreated");
    assert_eq!(host.disks.clean().expect("the cache is cleaned"), 0, "both were used recently");
    for name in host.cached() {
        let file = std::fs::File::open(host.base().join(name)).expect("the file exists");
        let old = std::time::SystemTime::now() - 2 * age;
        file.set_modified(old).expect("the time is set");
    }
    std::fs::write(host.base().join("of-somebody-else"), "").expect("the file is written");
    assert_eq!(host.disks.clean().expect("the cache is cleaned"), 1);
    assert_eq!(host.cached(), [format!("{two}.raw"), "of-somebody-else".into()]);
    host.disks.remove(want.server).expect("the disks are removed");
    assert_eq!(host.disks.clean().expect("the cache is cleaned"), 1);
    host.disks.prepare(&guest(one)).await.expect("the image is downloaded again");
}

#[tokio::test]
async fn opening_removes_incomplete_files() {
    let host = Host::new();
    let want = guest(kilonova_ids::ImageId::new_v4());
    std::fs::write(host.base().join(".new-x.part"), "half").expect("the file is written");
    std::fs::create_dir(host.disks.folder().join(format!(".new-{}", want.server)))
        .expect("the directory is created");
    std::fs::create_dir(host.disks.folder().join(".snapshot")).expect("the directory is created");
    let images = std::sync::Arc::clone(&host.table);
    kilonova_disks::Disks::open(host.disks.config().clone(), images).expect("the disks open");
    assert_eq!(super::host::names(&host.disks.folder()), [".snapshot", "_base"]);
    assert_eq!(host.cached(), [] as [&str; 0]);
    let path = host.folder.path().join("file");
    std::fs::write(&path, "").expect("the file is written");
    let config = kilonova_disks::DisksConfig { instances_path: path, ..Default::default() };
    let images = std::sync::Arc::clone(&host.table);
    let wrong = kilonova_disks::Disks::open(config, images).expect_err("a file is in the way");
    assert!(wrong.to_string().contains("cannot use instances_path"), "{wrong}");
}
