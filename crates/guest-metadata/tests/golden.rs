//! Compares every path in every version with the answers of a stock Nova, recorded by
//! `scripts/metadata_golden.py`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use std::collections::BTreeMap;

use kilonova_guest_metadata::{
    Answer, ContentType, Document, Images, TaggedDisk, Vendordata, VolumeDisk, hostname,
    lookup_versions,
};
use kilonova_node_api::{Boot, GuestMetadata, Key, Machine, SixMode};
use serde_json::{Value, json};

/// Base64 of the bytes that the recording uses instead of random ones.
const SEED: &str = "c2VlZA==";
const TODAY: &str = "2026-01-31";
const ADDRESS: &str = "198.51.100.9";

/// Three ports: one with an IPv4 and an IPv6 address, a function in a VLAN, and one with DHCP.
fn guest() -> Document {
    let interfaces = json!([
        {
            "port": "aaaaaaaa-0000-4000-8000-000000000001", "mac": "fa:16:3e:00:00:01",
            "network": "bbbbbbbb-0000-4000-8000-000000000001", "network_type": "flat",
            "physical_network": "physnet1", "mtu": 1500, "tag": "front",
            "addresses": [
                {
                    "address": "10.0.0.5", "prefix": 24, "gateway": "10.0.0.1", "dhcp": false,
                    "dns": ["10.0.0.2"], "routes": [["192.168.0.0/16", "10.0.0.9"]],
                },
                {"address": "fd00::5", "prefix": 64, "gateway": "fd00::1", "dhcp": false},
            ],
        },
        {
            "port": "dddddddd-0000-4000-8000-000000000002", "mac": "fa:16:3e:00:00:02",
            "network": "bbbbbbbb-0000-4000-8000-000000000002", "network_type": "vlan", "vlan": 7,
            "physical_network": "physnet2", "mtu": 9000, "device": "0000:02:10.1", "tag": "back",
            "addresses": [{"address": "10.1.0.5", "prefix": 24, "dhcp": false, "dns": ["10.0.0.2"]}],
        },
        {
            "port": "eeeeeeee-0000-4000-8000-000000000003", "mac": "fa:16:3e:00:00:03",
            "network": "bbbbbbbb-0000-4000-8000-000000000003", "network_type": "flat",
            "physical_network": "physnet1", "mtu": 1450,
            "addresses": [{
                "address": "10.2.0.5", "prefix": 24, "gateway": "10.2.0.1", "dhcp": true,
                "dns": ["10.2.0.3"], "dhcp_server": "10.2.0.2",
            }],
        },
    ]);
    let boot = Boot { image: None, root_gb: 1, ephemeral_gb: 2, swap_mb: 64, rebuilt: None };
    Document {
        server: "11111111-1111-4111-8111-111111111111".parse().expect("the value is a UUID"),
        instance_id: "i-0000001a".into(),
        name: "Front One".into(),
        hostname: hostname("front-one", "novalocal"),
        guest: GuestMetadata {
            project: "cccccccccccc4000800000000000000c".into(),
            keys: vec![Key {
                name: "mine".into(),
                kind: "ssh".into(),
                public_key: "ssh-ed25519 AAAA me@here".into(),
            }],
            metadata: [("role".to_owned(), "front".to_owned())].into(),
            availability_zone: "nova".into(),
            launch_index: 2,
            reservation: "r-12345678".into(),
            flavor: "m1.small".into(),
            ..GuestMetadata::default()
        },
        user_data: Some(b"#cloud-config\n".to_vec()),
        interfaces: serde_json::from_value(interfaces).expect("the text is JSON"),
        disks: Vec::new(),
        images: Images {
            machine: Some("ami-00000007".into()),
            kernel: Some("aki-00000008".into()),
            ramdisk: Some("ari-00000009".into()),
        },
        security_groups: vec!["default".into(), "web".into()],
        block_devices: Document::block_devices(&boot, &Machine::default(), &[]),
        vendordata: Vendordata::default(),
    }
}

/// A server with nothing but an image.
fn plain() -> Document {
    let boot = Boot { image: None, root_gb: 1, ephemeral_gb: 0, swap_mb: 0, rebuilt: None };
    Document {
        name: "db".into(),
        hostname: hostname("db", "novalocal"),
        guest: GuestMetadata {
            keys: Vec::new(),
            metadata: BTreeMap::new(),
            launch_index: 0,
            ..guest().guest
        },
        user_data: None,
        interfaces: Vec::new(),
        images: Images { kernel: None, ramdisk: None, ..guest().images },
        security_groups: Vec::new(),
        block_devices: Document::block_devices(&boot, &Machine::default(), &[]),
        ..guest()
    }
}

fn look(document: &Document, path: &str) -> Option<Answer> {
    document.lookup(path, SEED, TODAY, Some(ADDRESS))
}

fn text(document: &Document, path: &str) -> Option<String> {
    match look(document, path)? {
        Answer::Body(_, content) => Some(String::from_utf8(content).expect("the answer is text")),
        Answer::Password => None,
    }
}

/// Compares each recorded answer; returns how many had a body.
fn compare(document: &Document, recorded: &Value) -> usize {
    let mut bodies = 0;
    for (path, told) in recorded.as_object().expect("the recording has paths") {
        let own = look(document, path);
        match told {
            // Nova answers 500 below a value, and takes two leading slashes for the root.
            Value::Null => assert_eq!(own, None, "{path}"),
            Value::String(failure) if failure == "failure" => assert_eq!(own, None, "{path}"),
            Value::String(_) => assert_eq!(own, Some(Answer::Password), "{path}"),
            Value::Array(_) if path == "//latest/user-data" => {}
            told => {
                bodies += 1;
                let body = told[1].as_str().expect("a body is text");
                let Some(Answer::Body(kind, content)) = own else {
                    panic!("{path}: no body where Nova has {body}");
                };
                assert_eq!(kind.as_str(), told[0], "{path}");
                if path.ends_with(".json") {
                    let own: Value = serde_json::from_slice(&content).expect("the body is JSON");
                    let told: Value = serde_json::from_str(body).expect("the body is JSON");
                    assert_eq!(own, told, "{path}");
                } else {
                    assert_eq!(String::from_utf8_lossy(&content), body, "{path}");
                }
            }
        }
    }
    bodies
}

#[test]
fn every_path_in_every_version_is_answered_as_by_nova() {
    let recorded: Value =
        serde_json::from_str(include_str!("golden/nova.json")).expect("the recording is JSON");
    assert_eq!(compare(&guest(), &recorded["guest"]), 341);
    assert_eq!(compare(&plain(), &recorded["plain"]), 249);
}

#[test]
fn paths_are_normalised_and_lead_nowhere_else() {
    let guest = guest();
    let data = Some("#cloud-config\n".to_owned());
    for path in ["//latest/user-data", "latest/user-data/", "/latest/./x/../user-data"] {
        assert_eq!(text(&guest, path), data, "{path}");
    }
    for path in ["/openstack/latest/META_DATA.JSON", "/latest/meta-data/%2e%2e", "/ec2/openstack"] {
        assert_eq!(look(&guest, path), None, "{path}");
    }
    assert_eq!(lookup_versions("/"), look(&guest, "/"));
    assert_eq!(lookup_versions("//.//"), look(&guest, "/"));
    assert_eq!(lookup_versions("/latest"), None);
}

#[test]
fn versions_of_the_future_are_hidden_but_answered() {
    let guest = guest();
    let listed = guest.lookup("/openstack", SEED, "2025-04-03", None);
    let Some(Answer::Body(ContentType::Text, listed)) = listed else { panic!("{listed:?}") };
    assert!(String::from_utf8_lossy(&listed).ends_with("2020-10-14\nlatest"));
    assert!(guest.lookup("/openstack/2025-04-04", SEED, "2025-04-03", None).is_some());
}

#[test]
fn the_seed_and_the_address_are_those_of_the_request() {
    let plain = plain();
    let seeded = plain.lookup("/openstack/latest/meta_data.json", "ZnJlc2g=", TODAY, None);
    let Some(Answer::Body(_, seeded)) = seeded else { panic!("{seeded:?}") };
    assert!(String::from_utf8_lossy(&seeded).contains("ZnJlc2g="));
    let address = plain.lookup("/latest/meta-data/local-ipv4", SEED, TODAY, None);
    assert_eq!(address, Some(Answer::Body(ContentType::Text, Vec::new())));
}

#[test]
fn vendordata_is_the_files_and_the_services() {
    let mut guest = guest();
    guest.vendordata.fixed = Some(json!({"cloud-init": "#!/bin/sh\n"}));
    guest.vendordata.dynamic.insert("site".into(), json!({"rack": 7}));
    guest.vendordata.dynamic.insert("static".into(), json!("replaced"));
    let read = |guest: &Document, name: &str| {
        text(guest, &format!("/openstack/latest/{name}"))
            .map(|text| serde_json::from_str::<Value>(&text).expect("the body is JSON"))
    };
    let fixed = json!({"cloud-init": "#!/bin/sh\n"});
    assert_eq!(read(&guest, "vendor_data.json"), Some(fixed.clone()));
    let both = json!({"static": fixed, "site": {"rack": 7}});
    assert_eq!(read(&guest, "vendor_data2.json"), Some(both));
    guest.vendordata.dynamic.clear();
    guest.vendordata.fixed = None;
    assert_eq!(read(&guest, "vendor_data.json"), None);
    assert_eq!(read(&guest, "vendor_data2.json"), Some(json!({})));
}

#[test]
fn the_drive_has_the_files_of_the_service_but_no_password() {
    let guest = guest();
    let files = guest.drive(&[], SEED).expect("there is nothing to decode");
    assert!(files.iter().all(|(name, _)| !name.ends_with("password")));
    let mut compared = 0;
    for (name, content) in files.iter().filter(|(name, _)| name.starts_with("openstack/")) {
        let Some(Answer::Body(_, told)) = look(&guest, name) else { panic!("{name}") };
        assert_eq!(&told, content, "{name}");
        compared += 1;
    }
    assert_eq!(compared, 11 + 11 + 9 + 8 + 6, "files of all versions");
}

#[test]
fn volumes_with_tags_are_devices() {
    let volume = |device: &str, bus: &str, tag: Option<&str>| {
        let volume = json!({
            "volume_id": "77777777-7777-4777-8777-777777777777",
            "attachment_id": "88888888-8888-4888-8888-888888888888", "device": device, "bus": bus,
            "tag": tag, "size_gb": 1,
            "connection": {"protocol": "local", "device_path": "/dev/x"},
        });
        serde_json::from_value(volume).expect("the volume is readable")
    };
    let mut guest = guest();
    let all = [
        volume("vdb", "virtio", Some("logs")),
        volume("sdc", "scsi", Some("data")),
        volume("vdc", "virtio", None),
    ];
    guest.disks = all.iter().filter_map(TaggedDisk::of).collect();
    let data = text(&guest, "/openstack/latest/meta_data.json").expect("the file exists");
    let data: Value = serde_json::from_str(&data).expect("the body is JSON");
    let disks: Vec<&Value> = data["devices"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|device| device["type"] == "disk")
        .collect();
    let disk = |device: &str, bus: &str, address: &str, tag: &str| {
        json!({
            "type": "disk", "bus": bus, "address": address, "path": device,
            "serial": "77777777-7777-4777-8777-777777777777", "tags": [tag],
        })
    };
    let logs = disk("/dev/vdb", "none", "none", "logs");
    assert_eq!(disks, [&logs, &disk("/dev/sdc", "scsi", "0:0:0:2", "data")]);
}

#[test]
fn disks_are_named_by_their_bus() {
    let boot = Boot { image: None, root_gb: 1, ephemeral_gb: 0, swap_mb: 64, rebuilt: None };
    let machine = Machine { disk_bus: Some(kilonova_node_api::Bus::Scsi), ..Machine::default() };
    let devices = Document::block_devices(&boot, &machine, &[]);
    let expected = [("ami", "sda"), ("root", "/dev/sda"), ("swap", "/dev/sdb")];
    assert_eq!(devices, named(&expected));
}

fn named(devices: &[(&str, &str)]) -> BTreeMap<String, String> {
    devices.iter().map(|(role, device)| ((*role).to_owned(), (*device).to_owned())).collect()
}

#[test]
fn volumes_are_ebs_devices_and_keep_their_names() {
    let boot = Boot { image: None, root_gb: 1, ephemeral_gb: 2, swap_mb: 64, rebuilt: None };
    let volume = |device: &str, is_root| VolumeDisk { device: device.to_owned(), is_root };
    let volumes = [volume("vdd", false), volume("vdb", false)];
    let devices = Document::block_devices(&boot, &Machine::default(), &volumes);
    let expected = [
        ("ami", "vda"),
        ("root", "/dev/vda"),
        ("ephemeral0", "/dev/vdc"),
        ("swap", "/dev/vde"),
        ("ebs0", "/dev/vdb"),
        ("ebs1", "/dev/vdd"),
    ];
    assert_eq!(devices, named(&expected));
    let backed = [volume("vda", true)];
    let devices = Document::block_devices(&boot, &Machine::default(), &backed);
    let expected = [
        ("ami", "vda"),
        ("root", "/dev/vda"),
        ("ephemeral0", "/dev/vdb"),
        ("swap", "/dev/vdc"),
        ("ebs0", "/dev/vda"),
    ];
    assert_eq!(devices, named(&expected));
}

/// Nova: `_get_nets` in `nova/virt/netutils.py`.
#[test]
fn networks_have_the_mode_of_their_ipv6_subnet() {
    for (dhcp, mode, own_server, kind, is_static) in [
        (true, Some("slaac"), false, "ipv6_slaac", true),
        (true, Some("dhcpv6-stateless"), false, "ipv6_dhcpv6-stateless", true),
        (true, Some("dhcpv6-stateful"), false, "ipv6_dhcpv6-stateful", true),
        (true, None, false, "ipv6_dhcp", false),
        (false, None, false, "ipv6", true),
        // The server of an own network does not serve the subnet.
        (true, None, true, "ipv6", true),
    ] {
        let mut guest = guest();
        guest.interfaces.truncate(1);
        guest.interfaces[0].dhcp_mac = own_server.then(|| "fa:16:3e:dc:dc:dc".to_owned());
        let address = &mut guest.interfaces[0].addresses[1];
        address.dhcp = dhcp;
        address.six = mode.and_then(SixMode::parse);
        let data = text(&guest, "/openstack/latest/network_data.json").expect("the file exists");
        let data: Value = serde_json::from_str(&data).expect("the body is JSON");
        let network = &data["networks"][1];
        assert_eq!(network["type"], kind);
        assert_eq!(network["ip_address"] == "fd00::5", is_static, "{network}");
    }
}

#[test]
fn a_function_in_a_vlan_is_a_device_without_a_tag_too() {
    let mut guest = guest();
    guest.interfaces.iter_mut().for_each(|interface| interface.tag = None);
    let devices = |version: &str| {
        let data = text(&guest, &format!("/openstack/{version}/meta_data.json"));
        let data: Value = serde_json::from_str(&data.expect("the file exists")).expect("JSON");
        data["devices"].clone()
    };
    assert_eq!(devices("2016-10-06"), json!([]), "the version has no VLANs");
    let mut device = json!({
        "type": "nic", "bus": "none", "address": "none", "mac": "fa:16:3e:00:00:02", "vlan": 7,
    });
    assert_eq!(devices("2017-02-22"), json!([device]));
    device["vf_trusted"] = json!(false);
    assert_eq!(devices("latest"), json!([device]));
}

#[test]
fn dedicated_cpus_are_listed() {
    let mut guest = guest();
    guest.guest.dedicated_cpus = vec![1, 3];
    for (version, expected) in [("2018-08-27", Value::Null), ("2020-10-14", json!([1, 3]))] {
        let data = text(&guest, &format!("/openstack/{version}/meta_data.json"));
        let data: Value = serde_json::from_str(&data.expect("the file exists")).expect("JSON");
        assert_eq!(data["dedicated_cpus"], expected, "{version}");
    }
}
