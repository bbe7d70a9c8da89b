//! Images that are refused, and other failures.

use std::process::Command;

use super::host::{Host, Stored, guest, have, names};

async fn refusal(host: &Host, stored: Stored) -> String {
    let want = guest(host.store(stored));
    let error = host.disks.prepare(&want).await.expect_err("the image is refused").to_string();
    assert!(host.disks.volumes(want.server).root.is_none());
    assert_eq!(host.cached(), [] as [&str; 0], "nothing is cached");
    error
}

fn plain(bytes: Vec<u8>, format: &'static str) -> Stored {
    Stored { bytes, format: Some(format), sha512: None }
}

#[tokio::test]
async fn images_that_point_at_files_of_the_host() {
    if !have(&["qemu-img", "prlimit"]) {
        return;
    }
    let host = Host::new();
    let (path, data) = (host.folder.path().join("sly"), host.folder.path().join("data"));
    let secret = host.folder.path().join("secret");
    std::fs::write(&secret, vec![1; 1 << 20]).expect("the file is written");
    let make = |arguments: &[&str]| {
        let mut run = Command::new("qemu-img");
        let run = run.args(["create", "-q", "-f", "qcow2"]).args(arguments).arg(&path).arg("1M");
        let done = run.output().expect("the program runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        plain(std::fs::read(&path).expect("the file is read"), "qcow2")
    };
    let secret = secret.to_str().expect("the text is UTF-8");
    let backed = refusal(&host, make(&["-F", "raw", "-b", secret])).await;
    assert!(backed.contains("it has a backing file"), "{backed}");
    let option = format!("data_file={},data_file_raw=on", data.display());
    let elsewhere = refusal(&host, make(&["-o", &option])).await;
    assert!(elsewhere.contains("stores its data in another file"), "{elsewhere}");
}

#[tokio::test]
async fn images_with_wrong_metadata() {
    if !have(&["qemu-img", "prlimit"]) {
        return;
    }
    let host = Host::new();
    let no_qcow2 = refusal(&host, plain(vec![7; 10_000], "qcow2")).await;
    assert!(no_qcow2.contains("not a valid qcow2 image"), "{no_qcow2}");
    let cut = Stored { sha512: Some("00".repeat(64)), ..plain(vec![7; 10_000], "raw") };
    let changed = refusal(&host, cut).await;
    assert!(changed.contains("SHA-512"), "{changed}");
    // Its cluster table lies beyond the end of the file.
    let mut broken = host.as_qcow2(&vec![7; 300_000], &[]);
    broken[40..48].copy_from_slice(&(1_u64 << 50).to_be_bytes());
    let broken = refusal(&host, plain(broken, "qcow2")).await;
    assert!(broken.contains("it is corrupt"), "{broken}");
}

#[tokio::test]
async fn an_image_that_is_larger_than_the_flavors_disk() {
    if !have(&["qemu-img", "prlimit"]) {
        return;
    }
    let host = Host::new();
    let large = host.folder.path().join("large");
    let mut run = Command::new("qemu-img");
    let done = run.args(["create", "-q", "-f", "qcow2"]).arg(&large).arg("2G").status();
    assert!(done.expect("qemu-img runs").success());
    let id = host.image(std::fs::read(&large).expect("the file is read"), "qcow2");
    let mut want = guest(id);
    let error = host.disks.prepare(&want).await.expect_err("the image is too large").to_string();
    let words = format!(
        "Flavor's disk is too small for requested image. Flavor disk is 1073741824 bytes, image {id} \
         is 2147483648 bytes."
    );
    assert_eq!(error, words);
    want.config.boot.root_gb = 0;
    host.disks.prepare(&want).await.expect("a flavor without a disk accepts any image");
}

#[tokio::test]
async fn an_unknown_image_and_a_missing_program() {
    if !have(&["qemu-img", "prlimit"]) {
        return;
    }
    let host = Host::with(|config| config.mkisofs_cmd = "/nowhere/mkisofs".into());
    let gone = kilonova_ids::ImageId::new_v4();
    let error =
        host.disks.prepare(&guest(gone)).await.expect_err("the image is unknown").to_string();
    assert_eq!(error, format!("image {gone}: the image service does not know it"));
    let mut want = guest(host.image(vec![7; 512], "raw"));
    want.config.machine.config_drive = true;
    let error = host.disks.prepare(&want).await.expect_err("the program is missing").to_string();
    assert_eq!(
        error,
        "/nowhere/mkisofs is not installed on this host; `kilonova-agent check` names its package"
    );
    want.config.machine.config_drive = false;
    host.disks.prepare(&want).await.expect("the next attempt succeeds");
    let folder = host.disks.volumes(want.server).folder;
    assert_eq!(names(&folder), ["disk", "kilonova.json"]);
}

/// The size is checked before the conversion, which could fill the file system.
#[tokio::test]
async fn a_too_large_image_is_not_converted() {
    if !have(&["qemu-img", "prlimit"]) {
        return;
    }
    let host = Host::with(|config| config.force_raw_images = true);
    let large = host.folder.path().join("large");
    let mut run = Command::new("qemu-img");
    let done = run.args(["create", "-q", "-f", "qcow2"]).arg(&large).arg("2G").status();
    assert!(done.expect("qemu-img runs").success());
    let id = host.image(std::fs::read(&large).expect("the file is read"), "qcow2");
    let error =
        host.disks.prepare(&guest(id)).await.expect_err("the image is too large").to_string();
    assert!(error.starts_with("Flavor's disk is too small for requested image."), "{error}");
    assert_eq!(host.cached(), [] as [&str; 0], "it was not converted");
}
