//! Attaching, extending and detaching volumes of running guests, and booting a guest from a volume.

use std::path::Path;
use std::time::Duration;

use kilonova_hypervisor::{Definition, Hypervisor, PluggedVolumes};
use kilonova_ids::{AttachmentId, VolumeId};
use kilonova_libvirt::{Driver, LibvirtConfig};
use kilonova_node_api::{OutgoingMigration, Volume, VolumeSource, VolumeState, VolumeStatus};
use serde_json::json;

use crate::host::{self, Host, guest, to};
use crate::{clear, leave};

/// A volume that is a file, as on an NFS export.
fn volume(device: &str, bus: &str) -> Volume {
    serde_json::from_value(json!({
        "volume_id": VolumeId::new_v4(), "attachment_id": AttachmentId::new_v4(),
        "device": device, "bus": bus, "size_gb": 1,
        "connection": {
            "protocol": "nfs", "export": "192.0.2.9:/e", "name": device, "format": "raw",
            "qos": {"total_iops_sec": 500},
        },
    }))
    .expect("the volume is readable")
}

/// The same volume at an unreachable target that requires a login.
fn with_login(volume: &Volume) -> (Volume, VolumeSource) {
    let connection = json!({
        "protocol": "iscsi", "paths": [{"portal": "127.0.0.1:1", "iqn": "iqn.a", "lun": 1}],
        "chap": {"user": "me", "password": "open sesame"},
    });
    let source = json!({
        "type": "iscsi", "iqn": "iqn.a", "lun": 1, "user": "me", "secret": volume.attachment_id,
        "portal": {"name": "127.0.0.1", "port": 1},
    });
    let connection = serde_json::from_value(connection).expect("the connection is readable");
    let source = serde_json::from_value(source).expect("the source is readable");
    (Volume { connection, ..volume.clone() }, source)
}

fn add(guest: &mut Definition, volume: &Volume, file: &Path) {
    std::fs::File::create(file)
        .and_then(|file| file.set_len(1 << 30))
        .expect("the file is created");
    let source = VolumeSource::File { path: file.to_owned(), format: "raw".into() };
    guest.sources.insert(volume.volume_id, source);
    guest.config.volumes.push(volume.clone());
}

fn config() -> LibvirtConfig {
    LibvirtConfig {
        num_pcie_ports: 12,
        detach_attempts: 2,
        detach_timeout: Duration::from_secs(2),
        ..LibvirtConfig::default()
    }
}

async fn names(driver: &Driver, guest: &Definition) -> Vec<String> {
    let usage = driver.usage(guest.server).await.expect("the usage is read");
    usage.disks.into_iter().map(|disk| disk.name).collect()
}

/// The size of a guest's disk in bytes, as QEMU sees it.
fn capacity(host: &Host, guest: &Definition, device: &str) -> u64 {
    let text = host.virsh(&["domblkinfo", &guest.server.to_string(), device]);
    let line = text.lines().find_map(|line| line.strip_prefix("Capacity:"));
    line.and_then(|size| size.trim().parse().ok()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_of_a_running_guest() {
    if let Some(why) = host::missing() {
        kilonova_testkit::skip(why);
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let root = folder.path().canonicalize().expect("the file is read");
    let one = Host::start(&root, "127.0.0.1");
    let two = Host::start(&root, "127.0.0.2");
    let (here, there) = (one.driver(config()).await, two.driver(config()).await);
    let mut guest = guest();
    let server = guest.server;
    crate::boot(&here, &one, &guest).await;

    // Both volumes are attached once.
    let (scsi, virtio) = (volume("sdb", "scsi"), volume("vdc", "virtio"));
    let files = [root.join("volume-scsi"), root.join("volume-virtio")];
    for (volume, file) in [&scsi, &virtio].into_iter().zip(&files) {
        add(&mut guest, volume, file);
    }
    for _ in 0..2 {
        assert_eq!(here.plug_volumes(&guest).await, Ok(PluggedVolumes::default()));
    }
    here.define(&guest).await.expect("the domain is defined");
    let found = here.domain(server).await.expect("the lookup succeeds").expect("it exists");
    assert_eq!(found.definition(), Ok(guest.clone()), "libvirt keeps the definition");
    assert_eq!(names(&here, &guest).await, ["vda", "vdc", "sdb"]);
    let live = one.live_xml(server);
    for text in [format!("ua-{}", scsi.volume_id), format!("<serial>{}</serial>", scsi.volume_id)] {
        assert!(live.contains(&text), "{live}");
    }
    assert!(live.contains("<total_iops_sec>500</total_iops_sec>"), "{live}");

    // A volume that cannot be attached does not affect the others.
    let missing = volume("sdd", "scsi");
    let mut wrong = guest.clone();
    let path = root.join("nothing");
    wrong.sources.insert(missing.volume_id, VolumeSource::File { path, format: "raw".into() });
    wrong.config.volumes.push(missing.clone());
    let plugged = here.plug_volumes(&wrong).await.expect("the volumes are reconciled");
    assert_eq!(plugged.refused.len(), 1, "{plugged:?}");
    assert!(plugged.refused[0].0 == missing.volume_id && plugged.held.is_empty());

    // The secret of such a volume is removed, although the guest was never defined with it.
    let mut refused = wrong.clone();
    let (login, source) = with_login(&volume("sde", "scsi"));
    here.give_secret(server, &login, &source).await.expect("libvirt gets the secret");
    assert_eq!(one.secrets(), [login.attachment_id.to_string()]);
    refused.sources.insert(login.volume_id, source);
    refused.config.volumes.push(login);
    let plugged = here.plug_volumes(&refused).await.expect("the volumes are reconciled");
    assert_eq!(plugged.refused.len(), 2, "{plugged:?}");
    assert_eq!(one.secrets(), Vec::<String>::new());

    // An extended volume extends the guest's disk.
    assert_eq!(capacity(&one, &guest, "sdb"), 1 << 30);
    let file = std::fs::File::options().write(true).open(&files[0]).expect("the file exists");
    file.set_len(2 << 30).expect("the file grows");
    guest.config.volumes[0].size_gb = 2;
    assert_eq!(here.plug_volumes(&guest).await, Ok(PluggedVolumes::default()));
    assert_eq!(capacity(&one, &guest, "sdb"), 2 << 30);
    here.define(&guest).await.expect("the domain is defined");

    // A live migration does not copy volumes: libvirt refuses to migrate these files, which it considers local to this
    // host. It would not refuse disks that it copies.
    there.prepare(&guest).await.expect("the disks are created");
    there.define(&guest).await.expect("the domain is defined");
    there.prepare_incoming(server).await.expect("the domain is incoming");
    let refused = leave(&here, server, &to(&two, false))
        .await
        .expect_err("the destination has reported no volume");
    assert!(refused.message.contains("has not connected volume"), "{refused}");
    let attached = guest.connected().map(|(volume, source)| VolumeState {
        volume_id: volume.volume_id,
        attachment_id: Some(volume.attachment_id),
        status: VolumeStatus::Attached {
            device: volume.device.clone(),
            source: source.clone(),
            not_grown: None,
        },
    });
    let migration = OutgoingMigration { volumes: attached.collect(), ..to(&two, false) };
    let refused = leave(&here, server, &migration).await.expect_err("the files are local");
    assert!(refused.message.contains("without shared storage"), "{refused}");
    clear(&there, server).await;

    // Detaching a SCSI disk needs no cooperation of the guest. This guest has no driver that would release a PCI
    // device.
    let mut less = guest.clone();
    less.config.volumes.clear();
    less.sources.clear();
    let plugged = here.plug_volumes(&less).await.expect("the volumes are reconciled");
    let held: Vec<VolumeId> = plugged.held.iter().map(|one| one.volume).collect();
    assert_eq!((held, plugged.refused.len()), (vec![virtio.volume_id], 0), "{plugged:?}");
    assert_eq!(names(&here, &guest).await, ["vda", "vdc"]);
    clear(&here, server).await;
    assert_eq!(here.plug_volumes(&less).await.map_err(|error| error.step.as_str()), Err("volume"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_boots_from_a_volume() {
    if let Some(why) = host::missing() {
        kilonova_testkit::skip(why);
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let root = folder.path().canonicalize().expect("the file is read");
    let one = Host::start(&root, "127.0.0.1");
    let here = one.driver(config()).await;
    let mut guest = guest();
    let server = guest.server;
    (guest.config.boot.image, guest.config.boot.root_gb) = (None, 0);
    let file = root.join("volume-root");
    let volume = Volume { boot_index: Some(0), ..volume("vda", "virtio") };
    add(&mut guest, &volume, &file);
    host::write_image(&file);
    crate::boot(&here, &one, &guest).await;
    assert!(!one.instances().join(server.to_string()).join("disk").exists());
    assert_eq!(names(&here, &guest).await, ["vda"]);
    here.stop(server).await.expect("the guest is stopped");
    here.start(server).await.expect("the guest is started");
    clear(&here, server).await;
    assert!(file.exists(), "a volume is not removed with its guest");
}

/// libvirt has a secret only while its attachment exists.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_go_with_their_attachments() {
    if let Some(why) = host::missing() {
        kilonova_testkit::skip(why);
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let root = folder.path().canonicalize().expect("the file is read");
    let one = Host::start(&root, "127.0.0.1");
    let ceph = root.join("ceph");
    std::fs::create_dir(&ceph).expect("the directory is created");
    let here = one.driver(LibvirtConfig { ceph: ceph.clone(), ..config() }).await;
    let mut guest = guest();
    let (volume, source) = with_login(&volume("vdb", "virtio"));
    let id = volume.attachment_id;
    for _ in 0..2 {
        here.give_secret(guest.server, &volume, &source).await.expect("libvirt gets the secret");
    }
    guest.config.volumes.push(volume.clone());
    guest.sources.insert(volume.volume_id, source);
    here.define(&guest).await.expect("the domain is defined");
    assert_eq!(one.secrets(), [id.to_string()]);
    guest.config.volumes.clear();
    guest.sources.clear();
    here.define(&guest).await.expect("the domain is defined");
    assert_eq!(one.secrets(), Vec::<String>::new());

    let uuid = "99999999-9999-4999-8999-999999999999";
    let image: VolumeSource = serde_json::from_value(json!({
        "type": "rbd", "name": "volumes/v", "hosts": [], "user": "cinder", "secret": uuid,
    }))
    .expect("the source is readable");
    let why =
        here.give_secret(guest.server, &volume, &image).await.expect_err("the keyring is missing");
    assert!(why.message.contains("client.cinder.keyring"), "{why}");
    std::fs::write(ceph.join("ceph.client.cinder.keyring"), "[client.cinder]\nkey = c2VjcmV0\n")
        .expect("the file is written");
    here.give_secret(guest.server, &volume, &image).await.expect("libvirt gets the key");
    std::fs::remove_dir_all(&ceph).expect("the keyring is removed");
    here.give_secret(guest.server, &volume, &image).await.expect("the secret exists");
    clear(&here, guest.server).await;
    assert_eq!(one.secrets(), [uuid], "the key of a Ceph user belongs to the host");
}
