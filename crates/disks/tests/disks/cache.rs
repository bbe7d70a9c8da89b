//! One download for however many guests; images go when nobody uses them.

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
        task.await.expect("whole").expect("prepared");
    }
    assert_eq!(host.table.begun.load(Ordering::Relaxed), 1);
    assert_eq!(host.cached(), [format!("{image}.raw")]);
}

#[tokio::test]
async fn images_that_nobody_uses_are_removed_when_they_are_old() {
    if !have(&["qemu-img", "prlimit"]) {
        return;
    }
    let age = Duration::from_secs(3600);
    let host = Host::with(|config| config.remove_unused_original_minimum_age = age);
    let (one, two) = (host.image(vec![1; 512], "raw"), host.image(vec![2; 512], "raw"));
    let want = guest(one);
    host.disks.prepare(&want).await.expect("prepared");
    let want = rebuilt(&want, two);
    host.disks.prepare(&want).await.expect("anew");
    assert_eq!(host.disks.clean().expect("clean"), 0, "both were used lately");
    for name in host.cached() {
        let file = std::fs::File::open(host.base().join(name)).expect("it");
        let old = std::time::SystemTime::now() - 2 * age;
        file.set_modified(old).expect("older");
    }
    std::fs::write(host.base().join("of-somebody-else"), "").expect("written");
    assert_eq!(host.disks.clean().expect("clean"), 1);
    assert_eq!(host.cached(), [format!("{two}.raw"), "of-somebody-else".into()]);
    host.disks.remove(want.server).expect("removed");
    assert_eq!(host.disks.clean().expect("clean"), 1);
    host.disks.prepare(&guest(one)).await.expect("it comes again");
}

#[tokio::test]
async fn what_a_crash_left_is_cleared_when_the_folder_is_opened() {
    let host = Host::new();
    let want = guest(kilonova_ids::ImageId::new_v4());
    std::fs::write(host.base().join(".new-x.part"), "half").expect("written");
    std::fs::create_dir(host.disks.folder().join(format!(".new-{}", want.server))).expect("made");
    std::fs::create_dir(host.disks.folder().join(".snapshot")).expect("made");
    let images = std::sync::Arc::clone(&host.table);
    kilonova_disks::Disks::open(host.disks.config().clone(), images).expect("opened");
    assert_eq!(super::host::names(&host.disks.folder()), [".snapshot", "_base"]);
    assert_eq!(host.cached(), [] as [&str; 0]);
    let path = host.folder.path().join("file");
    std::fs::write(&path, "").expect("written");
    let config = kilonova_disks::Config { instances_path: path, ..Default::default() };
    let images = std::sync::Arc::clone(&host.table);
    let wrong = kilonova_disks::Disks::open(config, images).expect_err("no folder");
    assert!(wrong.to_string().contains("cannot be used"), "{wrong}");
}
