//! Fetching disks from another host, which is a directory here; a script replaces `ssh`.

use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use kilonova_hypervisor::Definition;
use kilonova_ids::HostName;
use kilonova_node_api::{Machine, Peer};

use super::host::{Host, guest, have, info, names, rebuilt, seen, write};

fn peer() -> Peer {
    Peer { host: HostName::verbatim("other"), address: "127.0.0.1".into() }
}

/// A replacement for `ssh` that logs the host and runs the command locally. Like `ssh`, it does not pass on how `rsync` compresses.
fn shell(folder: &Path) -> Vec<String> {
    let script = folder.join("shell");
    let message = folder.join("output");
    let text = format!(
        "#!/bin/sh\necho \"$1\" >> {}\nshift\nunset RSYNC_COMPRESS_LIST\nexec sh -c \"$*\"\n",
        message.display()
    );
    std::fs::write(&script, text).expect("the file is written");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))
        .expect("the file attributes are set");
    vec![script.to_str().expect("the text is UTF-8").to_owned()]
}

/// A host that fetches from `other`.
fn beside(other: &Host) -> Host {
    let shell = shell(other.folder.path());
    let there = other.disks.folder();
    Host::with(|config| {
        config.remote_shell = shell;
        config.remote_instances_path = Some(there);
        config.machine_id = Some("beside".into());
    })
}

fn image() -> Vec<u8> {
    (0..300_000_u32).map(|n| (n % 251) as u8).collect()
}

/// A guest that has written to its disk on a host.
async fn on(host: &Host) -> Definition {
    let mut want = guest(host.image(image(), "raw"));
    want.config.machine.kernel = Some(host.image(b"kernel".to_vec(), "aki"));
    want.config.boot.swap_mb = 8;
    host.disks.prepare(&want).await.expect("the disks are created");
    let volumes = host.disks.volumes(want.server);
    write(&volumes.root.expect("the disks exist").path, 512, 7);
    std::fs::write(&volumes.console, "console output").expect("the file is written");
    want
}

fn give(from: &Host, to: &Host) {
    let images = from.table.images.lock().expect("the lock is not poisoned").clone();
    to.table.images.lock().expect("the lock is not poisoned").extend(images);
}

#[tokio::test]
async fn a_fetched_disk_keeps_its_content_and_grows() {
    if !have(&["qemu-img", "qemu-io", "rsync", "prlimit", "mkswap"]) {
        return;
    }
    let old = Host::new();
    let new = beside(&old);
    let mut want = on(&old).await;
    give(&old, &new);
    want.config.boot.root_gb = 2;
    for _ in 0..2 {
        new.disks.fetch(&want, &peer()).await.expect("the disks are fetched");
        let volumes = new.disks.volumes(want.server);
        let root = volumes.root.expect("the disks exist").path;
        let about = info(&root);
        assert_eq!(about["virtual-size"], 2_u64 << 30);
        let base =
            new.base().join(format!("{}.raw", want.config.boot.image.expect("the disks exist")));
        assert_eq!(about["full-backing-filename"], base.to_str().expect("the text is UTF-8"));
        let is = seen(&root, 300_000);
        assert_eq!((is[511], is[512], is[1023], is[1024]), (image()[511], 7, 7, image()[1024]));
        assert_eq!(
            std::fs::read(volumes.kernel.expect("the disks exist")).expect("the file is read"),
            b"kernel"
        );
        assert!(volumes.swap.is_some() && !volumes.console.exists());
        write(&root, 0, 9);
    }
    let left = names(&new.disks.folder());
    assert!(left.len() == 2 && left.contains(&want.server.to_string()), "{left:?}");
    let message =
        std::fs::read_to_string(old.folder.path().join("output")).expect("the file is read");
    assert_eq!(message, "127.0.0.1\n127.0.0.1\n", "the image is downloaded from the image service");
    let there = old.disks.volumes(want.server).root.expect("the source keeps its disk");
    assert_eq!(seen(&there.path, 1), image()[..1]);
}

#[tokio::test]
async fn a_read_only_key_suffices() {
    if !have(&["qemu-img", "qemu-io", "rsync", "rrsync", "prlimit", "mkswap"]) {
        return;
    }
    let old = Host::new();
    let shell = shell(old.folder.path());
    let guarded = old.folder.path().join("guarded");
    let may = old.disks.folder();
    let text = format!(
        "#!/bin/sh\nshift\nunset RSYNC_COMPRESS_LIST\nSSH_CONNECTION='127.0.0.1 1 127.0.0.1 22' SSH_ORIGINAL_COMMAND=\"$*\" \
         exec rrsync -ro {}\n",
        may.display()
    );
    std::fs::write(&guarded, text).expect("the file is written");
    let mode = std::fs::metadata(&shell[0]).expect("the file exists").permissions();
    std::fs::set_permissions(&guarded, mode).expect("the file attributes are set");
    let new = Host::with(|config| {
        config.remote_shell = vec![guarded.to_str().expect("the text is UTF-8").to_owned()];
        config.remote_instances_path = Some("/".into());
    });
    let want = on(&old).await;
    new.disks.fetch(&want, &peer()).await.expect("the disks are fetched");
    let root = new.disks.volumes(want.server).root.expect("the disks exist").path;
    assert_eq!(seen(&root, 300_000)[1024..], image()[1024..]);
}

#[tokio::test]
async fn a_deleted_image_is_fetched_from_the_other_host() {
    if !have(&["qemu-img", "qemu-io", "rsync", "prlimit", "mkswap"]) {
        return;
    }
    let old = Host::new();
    let new = beside(&old);
    let mut want = on(&old).await;
    want.config.machine = Machine::default();
    new.disks.fetch(&want, &peer()).await.expect("the disks are fetched");
    let root = new.disks.volumes(want.server).root.expect("the disks exist").path;
    assert_eq!(seen(&root, 300_000)[1024..], image()[1024..]);
    assert_eq!(new.cached(), [format!("{}.raw", want.config.boot.image.expect("the disks exist"))]);
}

#[tokio::test]
async fn holes_are_neither_sent_nor_stored() {
    const GIB: u64 = 1 << 30;
    if !have(&["qemu-img", "qemu-io", "rsync", "prlimit"]) {
        return;
    }
    let old = Host::new();
    let shell = shell(old.folder.path());
    let counted = old.folder.path().join("counted");
    let sent = counted.with_extension("sent");
    let text = format!(
        "#!/bin/sh\n{} \"$@\"\ncame=$?\ngrep wchar /proc/$$/io > {}\nexit $came\n",
        shell[0],
        sent.display()
    );
    std::fs::write(&counted, text).expect("the file is written");
    let mode = std::fs::metadata(&shell[0]).expect("the file exists").permissions();
    std::fs::set_permissions(&counted, mode).expect("the file attributes are set");
    let there = old.disks.folder();
    let new = Host::with(|config| {
        config.remote_shell = vec![counted.to_str().expect("the text is UTF-8").to_owned()];
        config.remote_instances_path = Some(there);
    });
    let want = guest(kilonova_ids::ImageId::new_v4());
    let name = format!("{}.raw", want.config.boot.image.expect("the disks exist"));
    let large = std::fs::File::create(old.base().join(&name)).expect("the file is written");
    large.set_len(GIB).expect("the file is written");
    large.write_all_at(&image(), GIB / 2).expect("the file is written");
    old.disks.prepare(&want).await.expect("the disks are created");
    write(&old.disks.volumes(want.server).root.expect("the disks exist").path, 512, 7);

    new.disks.fetch(&want, &peer()).await.expect("the disks are fetched");
    let received = std::fs::File::open(new.base().join(&name)).expect("the file opens");
    let about = received.metadata().expect("the file exists");
    assert_eq!(about.len(), GIB);
    assert!(about.blocks() * 512 < 4 << 20, "{} blocks of 512 bytes", about.blocks());
    let mut bytes = vec![0; image().len()];
    received.read_exact_at(&mut bytes, GIB / 2).expect("the file is read");
    assert_eq!(bytes, image());
    let sent = std::fs::read_to_string(sent).expect("the file is read");
    let sent: u64 = sent.trim().trim_start_matches("wchar: ").parse().expect("the value is valid");
    assert!((300_000 / 4..16 << 20).contains(&sent), "{sent} bytes for 300000");
}

#[tokio::test]
async fn an_incoming_guest_gets_empty_disks_and_its_config_drive() {
    if !have(&["qemu-img", "qemu-io", "rsync", "prlimit", "mkswap", "genisoimage"]) {
        return;
    }
    let old = Host::new();
    let new = beside(&old);
    let mut want = on(&old).await;
    want.config.machine.config_drive = true;
    old.disks.prepare(&want).await.expect("the config drive is created");
    give(&old, &new);
    new.disks.prepare_incoming(&want, &peer()).await.expect("the target disks are created");
    let (here, there) = (new.disks.volumes(want.server), old.disks.volumes(want.server));
    let read =
        |volume: &kilonova_disks::Volume| std::fs::read(&volume.path).expect("the file is read");
    assert!(
        read(&here.config.expect("the disks exist"))
            == read(&there.config.expect("the disks exist"))
    );
    let root = here.root.expect("the disks exist").path;
    assert_eq!(seen(&root, 300_000), image(), "the migration stream carries the guest's data");
    assert_eq!(info(&root)["virtual-size"], 1_u64 << 30);
    assert!(here.swap.is_some() && here.kernel.is_some());

    // A disk on the source that is larger than the flavor.
    want.config.boot.root_gb = 3;
    old.disks.prepare(&want).await.expect("the disk grows");
    want.config.boot.root_gb = 1;
    new.disks.prepare_incoming(&want, &peer()).await.expect("the target disks are created");
    assert_eq!(info(&root)["virtual-size"], 3_u64 << 30, "as large as on the source");

    let away = Peer { address: "no host".into(), ..peer() };
    new.disks
        .prepare_incoming(&want, &away)
        .await
        .expect("the target disks are created without the source");
    assert_eq!(info(&root)["virtual-size"], 1_u64 << 30);
    assert!(new.disks.volumes(want.server).config.is_some());
}

/// With one directory, two hosts would each treat the other's files as their own.
#[tokio::test]
async fn a_shared_directory_is_refused_and_left_intact() {
    if !have(&["qemu-img", "qemu-io", "rsync", "prlimit", "mkswap"]) {
        return;
    }
    let old = Host::new();
    let shell = shell(old.folder.path());
    let want = on(&old).await;
    let folder = old.disks.folder();
    let new = Host::with(|config| {
        config.remote_shell = shell;
        config.machine_id = Some("another".into());
        config.instances_path = folder;
    });
    give(&old, &new);
    for refused in [
        new.disks.fetch(&want, &peer()).await,
        new.disks.prepare_incoming(&want, &peer()).await,
        new.disks.prepare(&want).await,
    ] {
        let why = refused.expect_err("the directory is refused").to_string();
        assert!(why.contains("shared directories are not supported"), "{why}");
    }
    new.disks.remove(want.server).expect("foreign files are left alone");
    let root = old.disks.volumes(want.server).root.expect("the disk still exists").path;
    assert_eq!(seen(&root, 1024)[512..], [7; 512]);
    old.disks.prepare(&want).await.expect("the owner may use its files");
}

#[tokio::test]
async fn a_failed_fetch_leaves_nothing() {
    if !have(&["qemu-img", "qemu-io", "rsync", "prlimit", "mkswap"]) {
        return;
    }
    let old = Host::new();
    let new = beside(&old);
    let want = on(&old).await;
    give(&old, &new);
    let refusal = async |want: &Definition, from: &Peer| {
        let error = new.disks.fetch(want, from).await.expect_err("the fetch fails").to_string();
        assert!(new.disks.volumes(want.server).root.is_none());
        error
    };
    let nobody = refusal(&guest(want.config.boot.image.expect("the disks exist")), &peer()).await;
    assert!(nobody.contains("from other: rsync: failed"), "{nobody}");
    let another =
        refusal(&rebuilt(&want, want.config.boot.image.expect("the disks exist")), &peer()).await;
    assert!(another.ends_with("its files belong to another rebuild"), "{another}");
    let sly = Peer { address: "-oProxyCommand=touch".into(), ..peer() };
    let sly = refusal(&want, &sly).await;
    assert!(sly.contains("is not a valid host address"), "{sly}");
    let half = old.disks.volumes(want.server).folder.join("kilonova.json");
    std::fs::remove_file(half).expect("the file is removed");
    let half = refusal(&want, &peer()).await;
    assert!(half.ends_with("it has no complete disks of the server"), "{half}");
}

/// Replaces a disk on the other host by one that refers to a file of this host.
#[tokio::test]
async fn disks_that_refer_to_other_files_are_refused() {
    if !have(&["qemu-img", "qemu-io", "rsync", "prlimit", "mkswap"]) {
        return;
    }
    let old = Host::new();
    let secret = old.folder.path().join("secret");
    std::fs::write(&secret, vec![1; 1 << 20]).expect("the file is written");
    let secret = secret.to_str().expect("the text is UTF-8").to_owned();
    let data = format!("data_file={},data_file_raw=on", old.folder.path().join("data").display());
    for (disk, arguments, words) in [
        ("disk", vec!["-o", &data], "stores its data in another file"),
        ("disk.swap", vec!["-F", "raw", "-b", &secret], "has an unexpected backing file"),
        ("disk.swap", vec!["-o", &data], "stores its data in another file"),
        ("disk.eph0", vec!["-F", "raw", "-b", &secret], "has an unexpected backing file"),
    ] {
        let want = on(&old).await;
        let new = beside(&old);
        give(&old, &new);
        let path = old.disks.volumes(want.server).folder.join(disk);
        let mut make = std::process::Command::new("qemu-img");
        let make = make.args(["create", "-q", "-f", "qcow2"]).args(arguments).arg(&path).arg("1M");
        assert!(make.status().expect("the program runs").success());
        let error =
            new.disks.fetch(&want, &peer()).await.expect_err("the disk is refused").to_string();
        assert!(error.contains(words), "{disk}: {error}");
        assert!(new.disks.volumes(want.server).root.is_none(), "{disk}");
    }
}
