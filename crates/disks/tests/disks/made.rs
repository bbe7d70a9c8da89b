//! Creating, growing, rebuilding and removing disks.

use std::io::Read as _;
use std::process::Command;

use kilonova_disks::Format;
use kilonova_hypervisor::FoundDisks;
use kilonova_ids::{ImageId, OperationId};
use kilonova_node_api::{InjectedFile, Machine, Rescue};

use super::host::{Host, guest, have, info, names, rebuilt, seen, write};

const GIB: u64 = 1 << 30;

fn image() -> Vec<u8> {
    (0..300_000_u32).map(|n| (n % 251) as u8).collect()
}

#[tokio::test]
async fn a_root_disk_is_an_overlay_of_the_image() {
    if !have(&["qemu-img", "qemu-io", "prlimit"]) {
        return;
    }
    let host = Host::new();
    for id in [host.image(image(), "raw"), host.qcow2(&image(), &["-c"])] {
        let want = guest(id);
        host.disks.prepare(&want).await.expect("the disks are created");
        let volumes = host.disks.volumes(want.server);
        let root = volumes.root.expect("the guest has a root disk");
        assert_eq!(root.format, Format::Qcow2);
        let about = info(&root.path);
        assert_eq!(about["virtual-size"], GIB);
        assert_eq!(about["backing-filename-format"], "raw");
        let base = host.base().join(format!("{id}.raw"));
        assert_eq!(about["full-backing-filename"], base.to_str().expect("the text is UTF-8"));
        assert_eq!(seen(&root.path, 300_000), image());
        write(&root.path, 0, 7);
        host.disks.prepare(&want).await.expect("preparing again succeeds");
        assert_eq!(seen(&root.path, 1), [7], "the guest's data stays");
        assert_eq!(
            std::fs::read(&base).expect("the file is read")[0],
            0,
            "and the image is unchanged"
        );
        assert!(volumes.ephemeral.is_none() && volumes.swap.is_none() && volumes.config.is_none());
        host.disks.remove(want.server).expect("the disks are removed");
        assert!(!volumes.folder.exists());
        host.disks.remove(want.server).expect("removing again succeeds");
    }
}

#[tokio::test]
async fn a_volume_backed_guest_has_no_root_disk() {
    if !have(&["qemu-img", "mkfs.ext4", "prlimit"]) {
        return;
    }
    let host = Host::new();
    let mut want = guest(ImageId::new_v4());
    let root = serde_json::json!({
        "volume_id": ImageId::new_v4(), "attachment_id": ImageId::new_v4(), "device": "vda",
        "bus": "virtio", "boot_index": 0, "size_gb": 1,
        "connection": {"protocol": "local", "device_path": "/dev/x"},
    });
    want.config.volumes = vec![serde_json::from_value(root).expect("the volume is readable")];
    (want.config.boot.image, want.config.boot.root_gb) = (None, 0);
    want.config.boot.ephemeral_gb = 1;
    for _ in 0..2 {
        host.disks.prepare(&want).await.expect("the disks are created");
        let volumes = host.disks.volumes(want.server);
        assert!(volumes.root.is_none() && volumes.ephemeral.is_some());
    }
    let ephemeral = host.disks.volumes(want.server).ephemeral.expect("the disk exists");
    write(&ephemeral.path, 0, 7);
    host.disks.prepare(&want).await.expect("preparing again succeeds");
    assert_eq!(seen(&ephemeral.path, 1), [7], "the guest's data stays");
    host.disks.remove(want.server).expect("the disks are removed");
}

#[tokio::test]
async fn an_image_may_keep_its_format() {
    if !have(&["qemu-img", "prlimit"]) {
        return;
    }
    let host = Host::with(|config| config.force_raw_images = false);
    let id = host.qcow2(&image(), &[]);
    let mut want = guest(id);
    assert_eq!(host.disks.find(&want), FoundDisks::None);
    host.disks.prepare(&want).await.expect("the disks are created");
    assert_eq!(host.disks.find(&want), FoundDisks::Kept);
    assert_eq!(host.cached(), [format!("{id}.qcow2")]);
    let root = host.disks.volumes(want.server).root.expect("the guest has a root disk");
    assert_eq!(info(&root.path)["backing-filename-format"], "qcow2");
    assert_eq!(seen(&root.path, 300_000), image());
    want.config.boot.rebuilt = Some(OperationId::new_v4());
    assert_eq!(host.disks.find(&want), FoundDisks::OfRebuild(None), "a rebuild replaces the disks");
    host.disks.prepare(&want).await.expect("the disks are replaced");
    let rebuilt = want.config.boot.rebuilt.take();
    assert_eq!(host.disks.find(&want), FoundDisks::OfRebuild(rebuilt));
    let root = host.disks.volumes(want.server).root.expect("the guest has a root disk");
    std::fs::remove_file(&root.path).expect("the file is removed");
    assert_eq!(host.disks.find(&want), FoundDisks::None);
}

#[tokio::test]
async fn ephemeral_and_swap_disks_are_formatted() {
    if !have(&["qemu-img", "mkfs.ext4", "mkswap", "prlimit"]) {
        return;
    }
    let host = Host::new();
    let mut want = guest(host.image(image(), "raw"));
    (want.config.boot.ephemeral_gb, want.config.boot.swap_mb) = (1, 64);
    host.disks.prepare(&want).await.expect("the disks are created");
    let volumes = host.disks.volumes(want.server);
    let (ephemeral, swap) =
        (volumes.ephemeral.expect("the disks exist"), volumes.swap.expect("the disks exist"));
    let head = seen(&ephemeral.path, 4096);
    assert_eq!(head[0x438..0x43a], [0x53, 0xef], "ext4");
    assert_eq!(&head[0x478..0x482], b"ephemeral0");
    assert_eq!(&seen(&swap.path, 4096)[4086..], b"SWAPSPACE2");
    assert_eq!(info(&swap.path)["virtual-size"], 64 << 20);
    let before = std::fs::read(&ephemeral.path).expect("the file is read");

    (want.config.boot.root_gb, want.config.boot.ephemeral_gb, want.config.boot.swap_mb) =
        (3, 2, 32);
    host.disks.prepare(&want).await.expect("the disks grow");
    let root = host.disks.volumes(want.server).root.expect("the guest has a root disk");
    assert_eq!(info(&root.path)["virtual-size"], 3 * GIB);
    assert_eq!(info(&ephemeral.path)["virtual-size"], 2 * GIB);
    assert_eq!(info(&swap.path)["virtual-size"], 32 << 20);
    assert!(before.len() > 4096 && seen(&ephemeral.path, 4096) == head, "its content stays");

    (want.config.boot.root_gb, want.config.boot.swap_mb) = (1, 0);
    host.disks.prepare(&want).await.expect("preparing again succeeds");
    assert_eq!(info(&root.path)["virtual-size"], 3 * GIB, "nothing shrinks");
    assert!(!swap.path.exists());
    let left = names(&volumes.folder);
    assert_eq!(left, ["disk", "disk.eph0", "kilonova.json"]);
}

#[tokio::test]
async fn a_rebuild_replaces_the_disks_once() {
    if !have(&["qemu-img", "qemu-io", "prlimit"]) {
        return;
    }
    let host = Host::new();
    let first = guest(host.image(image(), "raw"));
    host.disks.prepare(&first).await.expect("the disks are created");
    let volumes = host.disks.volumes(first.server);
    std::fs::write(&volumes.console, "console output").expect("the file is written");
    let root = volumes.root.expect("the guest has a root disk").path;
    write(&root, 0, 7);
    let anew = rebuilt(&first, host.image(vec![9; 300_000], "raw"));
    host.disks.prepare(&anew).await.expect("the disks are recreated");
    assert_eq!(seen(&root, 2), [9, 9]);
    assert!(volumes.console.exists());
    write(&root, 0, 8);
    host.disks.prepare(&anew).await.expect("preparing again succeeds");
    assert_eq!(seen(&root, 2), [8, 8], "replaced once");
}

#[tokio::test]
async fn incomplete_disks_are_recreated() {
    if !have(&["qemu-img", "prlimit"]) {
        return;
    }
    let host = Host::new();
    let want = guest(host.image(image(), "raw"));
    host.disks.prepare(&want).await.expect("the disks are created");
    let volumes = host.disks.volumes(want.server);
    let root = volumes.root.expect("the guest has a root disk").path;
    std::fs::remove_file(volumes.folder.join("kilonova.json")).expect("the file is removed");
    std::fs::write(&root, "half").expect("the file is written");
    std::fs::write(volumes.folder.join(".new-disk"), "less").expect("the file is written");
    host.disks.prepare(&want).await.expect("the disks are created");
    assert_eq!(seen(&root, 300_000), image());
    assert_eq!(names(&volumes.folder), ["disk", "kilonova.json"]);
}

#[tokio::test]
async fn kernel_and_ramdisk_are_files_beside_the_disk() {
    if !have(&["qemu-img", "prlimit"]) {
        return;
    }
    let host = Host::new();
    let mut want = guest(host.image(image(), "raw"));
    want.config.machine = Machine {
        kernel: Some(host.image(b"kernel".repeat(1000), "aki")),
        ramdisk: Some(host.image(b"ramdisk".to_vec(), "ari")),
        ..Machine::default()
    };
    host.disks.prepare(&want).await.expect("the disks are created");
    let volumes = host.disks.volumes(want.server);
    assert_eq!(
        std::fs::read(volumes.kernel.expect("the disks exist")).expect("the file is read"),
        b"kernel".repeat(1000)
    );
    assert_eq!(
        std::fs::read(volumes.ramdisk.expect("the disks exist")).expect("the file is read"),
        b"ramdisk"
    );
}

#[tokio::test]
async fn a_guest_is_rescued_from_another_disk() {
    if !have(&["qemu-img", "qemu-io", "prlimit"]) {
        return;
    }
    let host = Host::new();
    let mut want = guest(host.image(image(), "raw"));
    host.disks.prepare(&want).await.expect("the disks are created");
    let root = host.disks.volumes(want.server).root.expect("the disks exist");
    write(&root.path, 0, 7);
    let kernel: ImageId = host.image(b"mends".to_vec(), "aki");
    want.config.rescue = Some(Rescue {
        image: Some(host.image(vec![5; 1 << 20], "raw")),
        machine: Machine { kernel: Some(kernel), ..Machine::default() },
        ..Rescue::default()
    });
    for _ in 0..2 {
        host.disks.prepare_rescue_disk(&want).await.expect("the disks are created");
        let rescue = host.disks.volumes(want.server).rescue.expect("the disks exist");
        assert_eq!(seen(&rescue.root.path, 2), [5, 5], "the rescue disk is recreated each time");
        write(&rescue.root.path, 0, 6);
        assert_eq!(
            std::fs::read(rescue.kernel.expect("the disks exist")).expect("the file is read"),
            b"mends"
        );
    }
    let mut bare = guest(want.config.boot.image.expect("the disks exist"));
    bare.config.rescue.clone_from(&want.config.rescue);
    let bare = host.disks.prepare_rescue_disk(&bare).await.expect_err("the server has no disk");
    assert!(bare.to_string().contains("has no disk on this host"), "{bare}");
    host.disks.end_rescue(want.server).expect("the rescue ends");
    let volumes = host.disks.volumes(want.server);
    assert!(volumes.rescue.is_none());
    assert_eq!(seen(&root.path, 1), [7], "its own disk is unchanged");
    host.disks.prepare(&want).await.expect("preparing again succeeds");
    assert_eq!(seen(&root.path, 1), [7]);
}

#[tokio::test]
async fn a_snapshot_is_the_whole_disk() {
    if !have(&["qemu-img", "qemu-io", "prlimit"]) {
        return;
    }
    let host = Host::new();
    let want = guest(host.image(image(), "raw"));
    host.disks.prepare(&want).await.expect("the disks are created");
    let root = host.disks.volumes(want.server).root.expect("the disks exist");
    write(&root.path, 512, 7);
    let file = host.folder.path().join("copies/one");
    for _ in 0..2 {
        let format = host.disks.snapshot(want.server, Some(Format::Raw), &file).await;
        assert_eq!(format.expect("the snapshot is written"), Format::Raw);
    }
    assert_eq!(std::fs::metadata(&file).expect("the file exists").len(), GIB);
    let mut copy = [0; 4096];
    std::fs::File::open(&file)
        .expect("the file opens")
        .read_exact(&mut copy)
        .expect("the file is read");
    assert_eq!((copy[511], copy[512], copy[1023]), (image()[511], 7, 7));
    let nobody = guest(ImageId::new_v4()).server;
    let absent =
        host.disks.snapshot(nobody, None, &file).await.expect_err("the server has no disk");
    assert!(absent.to_string().contains("has no disk on this host"), "{absent}");
    let space = host.disks.space().expect("the space is known");
    assert!(space.total >= space.free && space.total > GIB);
}

#[tokio::test]
async fn a_snapshot_is_sparse_and_bootable() {
    if !have(&["qemu-img", "qemu-io", "prlimit"]) {
        return;
    }
    let host = Host::new();
    let mut want = guest(host.image(image(), "raw"));
    want.config.boot.root_gb = 40;
    host.disks.prepare(&want).await.expect("the disks are created");
    write(&host.disks.volumes(want.server).root.expect("the disks exist").path, 512, 7);
    let file = host.folder.path().join("copies/one");
    let format =
        host.disks.snapshot(want.server, None, &file).await.expect("the snapshot is written");
    assert_eq!(format, Format::Qcow2, "the disk's own");
    let about = info(&file);
    assert_eq!((&about["format"], &about["virtual-size"]), (&"qcow2".into(), &(40 * GIB).into()));
    assert!(about["backing-filename"].is_null(), "{about}");
    let bytes = std::fs::read(&file).expect("the file is read");
    assert!(bytes.len() < 2 << 20, "{} bytes of 300000", bytes.len());
    let mut another = guest(host.image(bytes, format.as_str()));
    another.config.boot.root_gb = 40;
    host.disks.prepare(&another).await.expect("a snapshot is a valid image");
    let is = seen(&host.disks.volumes(another.server).root.expect("the disks exist").path, 300_000);
    assert_eq!((is[511], is[512], is[1023]), (image()[511], 7, 7));
    assert_eq!(is[1024..], image()[1024..]);
}

#[tokio::test]
async fn a_config_drive_is_a_readable_iso_image() {
    if !have(&["qemu-img", "genisoimage", "isoinfo", "prlimit"]) {
        return;
    }
    let host = Host::new();
    let mut want = guest(host.image(image(), "raw"));
    want.config.machine.config_drive = true;
    want.config.guest.dynamic_vendordata = true;
    let failed = host.disks.prepare(&want).await.expect_err("a service has no answer").to_string();
    assert!(failed.contains("the vendor data: a service failed"), "{failed}");
    let answers = serde_json::from_str(r#"{"ipam": {"zone": "a"}}"#).expect("the text is JSON");
    *host.table.vendordata.lock().expect("the lock is not poisoned") = Some(answers);
    want.config.guest.user_data = Some("aGVsbG8K".into());
    let motd = InjectedFile { path: "/etc/motd".into(), contents: "SGVsbG8K".into() };
    want.config.guest.files = vec![motd];
    host.disks.prepare(&want).await.expect("the disks are created");
    let volumes = host.disks.volumes(want.server);
    let disc = volumes.config.expect("the guest has a config drive");
    assert_eq!(disc.format, Format::Raw);
    let isoinfo = |arguments: &[&str]| {
        let run = Command::new("isoinfo").args(["-i"]).arg(&disc.path).args(arguments).output();
        String::from_utf8(run.expect("isoinfo runs").stdout).expect("the text is UTF-8")
    };
    assert!(isoinfo(&["-d"]).contains("Volume id: config-2"));
    let notified = isoinfo(&["-R", "-x", "/openstack/latest/meta_data.json"]);
    let notified: serde_json::Value = serde_json::from_str(&notified).expect("the text is JSON");
    assert_eq!(notified["uuid"], want.server.to_string());
    assert_eq!(notified["hostname"], "one.novalocal");
    assert_eq!(isoinfo(&["-J", "-x", "/openstack/2018-08-27/user_data"]), "hello\n");
    assert_eq!(isoinfo(&["-J", "-x", "/openstack/content/0000"]), "Hello\n");
    let vendordata = isoinfo(&["-R", "-x", "/openstack/latest/vendor_data2.json"]);
    assert_eq!(vendordata, r#"{"ipam":{"zone":"a"},"static":{}}"#);
    assert_eq!(isoinfo(&["-R", "-x", "/ec2/latest/user-data"]), "hello\n");
    let before = std::fs::read(&disc.path).expect("the file is read");
    host.disks.prepare(&want).await.expect("preparing again succeeds");
    assert!(std::fs::read(&disc.path).expect("the file is read") == before, "it is created once");
    assert_eq!(names(&volumes.folder), ["disk", "disk.config", "kilonova.json"]);
}
