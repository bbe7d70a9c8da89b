//! Golden XML of volumes.

use kilonova_disks::{Format, RescueVolumes, Volumes};
use kilonova_node_api::{Machine, Rescue, RescueDevice};
use serde_json::{Value, json};

use super::*;
use crate::config::LibvirtConfig;
use crate::files::layout;
use crate::xml::tests::{changed, host, volumes};
use crate::xml::{NumaPlacement, domain};

/// A volume whose ids consist of this hexadecimal digit.
fn volume(digit: char, device: &str, bus: &str, boot_index: Option<i64>, more: &Value) -> Volume {
    let id = |tail: &str| format!("{}{tail}", digit.to_string().repeat(8));
    let mut connection = json!({"protocol": "local", "device_path": "/dev/x"});
    for (name, value) in more.as_object().into_iter().flatten() {
        connection[name] = value.clone();
    }
    serde_json::from_value(json!({
        "volume_id": id("-7777-4777-8777-777777777777"),
        "attachment_id": id("-8888-4888-8888-888888888888"),
        "device": device, "bus": bus, "boot_index": boot_index, "size_gb": 1,
        "connection": connection,
    }))
    .expect("the volume is readable")
}

fn source(text: Value) -> VolumeSource {
    serde_json::from_value(text).expect("the source is readable")
}

fn rbd() -> VolumeSource {
    source(json!({
        "type": "rbd", "name": "volumes/volume-a",
        "hosts": [{"name": "192.0.2.9", "port": 6789}, {"name": "fd00::9", "port": 6790}],
        "user": "cinder", "secret": "99999999-9999-4999-8999-999999999999",
    }))
}

fn iscsi() -> VolumeSource {
    source(json!({
        "type": "iscsi", "iqn": "iqn.2010-10.org.openstack:volume-b", "lun": 1,
        "portal": {"name": "192.0.2.9", "port": 3260}, "initiator": "iqn.1993-08.org.debian:01:a",
        "user": "me", "secret": "99999999-9999-4999-8999-999999999999",
    }))
}

fn block() -> VolumeSource {
    source(json!({
        "type": "block",
        "path": "/dev/disk/by-path/ip-192.0.2.9:3260-iscsi-iqn.2010-10.org.openstack:volume-c-lun-1",
    }))
}

fn file(format: &str) -> VolumeSource {
    source(json!({"type": "file", "path": "/var/lib/nova/mnt/0/volume-d", "format": format}))
}

fn guest(volumes: Vec<(Volume, VolumeSource)>) -> Definition {
    let mut guest =
        changed(|config| config.volumes = volumes.iter().map(|(one, _)| one.clone()).collect());
    guest.sources = volumes.into_iter().map(|(one, source)| (one.volume_id, source)).collect();
    guest
}

fn xml(host: &HostProfile, guest: &Definition, files: Volumes) -> String {
    let layout = layout(guest, files);
    let xml = domain(host, guest, &layout, &NumaPlacement::default(), None, &Default::default());
    assert_eq!(Definition::from_xml(&xml), Ok(guest.without_secrets()));
    xml
}

/// The disks and controllers of a domain.
fn disks(xml: &str) -> &str {
    let from = xml.find("    <disk ").expect("there are disks");
    let to = xml.find("    <serial type").expect("there is a serial port");
    &xml[from..to]
}

#[test]
fn volumes_beside_a_local_disk() {
    let qos = json!({
        "qos": {"total_iops_sec": 500, "read_bytes_sec": 1_048_576}, "discard": true,
        "logical_block_size": 512, "physical_block_size": 4096,
    });
    let mut shared = volume('c', "vdd", "virtio", None, &json!({"readonly": true}));
    shared.shareable = true;
    let guest = guest(vec![
        (volume('a', "vdb", "virtio", None, &qos), rbd()),
        (volume('b', "sdb", "scsi", None, &Value::Null), iscsi()),
        (shared, block()),
        (volume('d', "sdaa", "scsi", Some(1), &Value::Null), file("qcow2")),
    ]);
    let host = host(LibvirtConfig::default());
    let xml = xml(&host, &guest, volumes());
    insta::assert_snapshot!("volumes", disks(&xml));
    let live = volume_disks(&xml);
    let names: Vec<_> = live.iter().map(|disk| disk.device.as_str()).collect();
    assert_eq!(names, ["vdb", "sdb", "vdd", "sdaa"]);
    for ((volume, source), disk) in guest.connected().zip(&live) {
        assert_eq!((disk.volume, &disk.source), (volume.volume_id, &name_of(source)));
        let alone = volume_xml(&host, volume, source);
        assert!(!alone.contains("<boot "), "{alone}");
        assert!(alone.contains(&disk.volume.to_string()), "{alone}");
    }
}

#[test]
fn a_volume_backed_guest_has_no_disk_of_an_image() {
    let root = volume('a', "vda", "virtio", Some(0), &Value::Null);
    let mut guest = guest(vec![
        (volume('d', "vdb", "virtio", Some(1), &Value::Null), file("raw")),
        (root, rbd()),
    ]);
    guest.config.boot.image = None;
    let files = || Volumes { root: None, ephemeral: volumes().root, ..volumes() };
    let config =
        LibvirtConfig { network_cache: Some("writeback".into()), ..LibvirtConfig::default() };
    let host = host(config);
    insta::assert_snapshot!("volume_backed", disks(&xml(&host, &guest, files())));
    let rescue = kilonova_disks::Volume { path: "/i/disk.rescue".into(), format: Format::Qcow2 };
    let rescue = Some(RescueVolumes { root: rescue, kernel: None, ramdisk: None });
    let device = RescueDevice { medium: Medium::Disk, bus: Some(Bus::Virtio) };
    guest.config.rescue = Some(Rescue { device: Some(device), ..Rescue::default() });
    let xml = xml(&host, &guest, Volumes { rescue, ..files() });
    assert_eq!(xml.matches("<boot order='1'/>").count(), 1, "{xml}");
    let at = |text: &str| xml.find(text).expect("the text is there");
    assert!(at("<boot order='1'/>") > at("disk.rescue"), "the rescue disk boots");
    assert!(xml.contains("<target dev='vdd' bus='virtio'/>"), "{xml}");
}

#[test]
fn a_volume_may_need_a_controller() {
    let host = host(LibvirtConfig::default());
    for (bus, controller) in
        [("scsi", Some("model='virtio-scsi'")), ("sata", None), ("virtio", None)]
    {
        let device = if bus == "virtio" { "vdb" } else { "sdb" };
        let guest = guest(vec![(volume('a', device, bus, None, &Value::Null), block())]);
        let xml = xml(&host, &guest, volumes());
        assert_eq!(xml.contains("type='scsi'"), controller.is_some(), "{xml}");
        assert!(controller.is_none_or(|text| xml.contains(text)), "{xml}");
    }
    let machine = Machine { disk_bus: Some(Bus::Scsi), ..Machine::default() };
    let mut first = guest(vec![(volume('a', "sdc", "scsi", None, &Value::Null), block())]);
    first.config.machine = machine;
    let xml = xml(&host, &first, volumes());
    assert!(xml.contains("<target dev='sda' bus='scsi'/>") && xml.contains("unit='2'"), "{xml}");
}

#[test]
fn a_running_guest_may_lack_the_controller() {
    let guest = guest(vec![(volume('a', "sdb", "scsi", None, &Value::Null), block())]);
    let scsi = &guest.config.volumes[0];
    let bare = "<domain><devices><controller type='usb'/></devices></domain>";
    let controller = missing_controller(&guest, scsi, bare).expect("it lacks one");
    assert_eq!(controller, "<controller type='scsi' index='0' model='virtio-scsi'/>\n");
    let full = bare.replace("usb", "scsi");
    assert_eq!(missing_controller(&guest, scsi, &full), None);
    let virtio = volume('b', "vdb", "virtio", None, &Value::Null);
    assert_eq!(missing_controller(&guest, &virtio, bare), None);
}

#[test]
fn disks_are_found_by_alias_or_serial() {
    let id = "aaaaaaaa-7777-4777-8777-777777777777";
    let xml = format!(
        "<domain><devices><disk><target dev='vda'/></disk>
        <disk><target dev='vdb'/><alias name='ua-{id}'/></disk>
        <disk><target dev='vdc'/><serial>{id}</serial><alias name='virtio-disk2'/></disk>
        <disk><target dev='vdd'/><serial>other</serial></disk></devices></domain>"
    );
    let names: Vec<_> = volume_disks(&xml).into_iter().map(|disk| disk.device).collect();
    assert_eq!(names, ["vdb", "vdc"]);
    assert!(volume_disks("<domain").is_empty());
}

#[test]
fn secrets_have_a_use() {
    let uuid = Uuid::nil();
    let ceph = secret(uuid, "ceph", "client.cinder secret");
    let iscsi = secret(uuid, "iscsi", "kilonova/a/b");
    insta::assert_snapshot!("secrets", format!("{ceph}{iscsi}"));
}
