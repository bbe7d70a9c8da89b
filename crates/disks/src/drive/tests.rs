//! The content of the config drive by a golden file, and the content of each version.

use std::collections::BTreeMap;

use kilonova_hypervisor::Definition;
use kilonova_node_api::{
    Boot, Domain, DomainConfig, GuestMetadata, InjectedFile, Key, Machine, Power,
};
use serde_json::{Map, Value, json};

use kilonova_guest_metadata::hostname;

use super::*;

fn definition() -> Definition {
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
            "addresses": [{"address": "10.1.0.5", "prefix": 24, "dhcp": true, "dns": ["10.0.0.2"]}],
        },
    ]);
    let domain = Domain {
        config: DomainConfig {
            name: "instance-0000001a".into(),
            display_name: "Front One".into(),
            vcpus: 1,
            memory_mb: 512,
            boot: Boot {
                image: "22222222-2222-4222-8222-222222222222".parse().ok(),
                root_gb: 1,
                ephemeral_gb: 0,
                swap_mb: 0,
                rebuilt: None,
            },
            machine: Machine::default(),
            guest: GuestMetadata {
                hostname: "front-one".into(),
                project: "cccccccccccc4000800000000000000c".into(),
                keys: vec![Key {
                    name: "mine".into(),
                    kind: "ssh".into(),
                    public_key: "ssh-ed25519 AAAA me@here".into(),
                }],
                user_data: Some("I2Nsb3VkLWNvbmZpZwo=".into()),
                metadata: [("role".to_owned(), "front".to_owned())].into(),
                availability_zone: "nova".into(),
                launch_index: 2,
                reservation: "r-12345678".into(),
                flavor: "m1.small".into(),
                ..GuestMetadata::default()
            },
            devices: Vec::new(),
            interfaces: serde_json::from_value(interfaces).expect("the text is JSON"),
            rescue: None,
            volumes: Vec::new(),
            numa: None,
        },
        power: Power::On,
        starts_paused: false,
        existing: false,
        verb: None,
        from: None,
        outgoing_migration: None,
        kept_machine_type: None,
    };
    let server = "11111111-1111-4111-8111-111111111111".parse().expect("the value is a UUID");
    Definition::of(server, &domain)
}

fn files_of(definition: &Definition) -> BTreeMap<String, Vec<u8>> {
    files(definition, &DisksConfig::default(), Vendordata::default(), "c2VlZA==")
        .expect("the config drive is built")
        .into_iter()
        .collect()
}

fn read(files: &BTreeMap<String, Vec<u8>>, name: &str) -> Value {
    serde_json::from_slice(&files[name]).expect(name)
}

#[test]
fn the_latest_files_match_the_golden_file() {
    let files = files_of(&definition());
    let newest: Value = files
        .keys()
        .filter(|name| name.contains("/latest/") && name.ends_with(".json"))
        .map(|name| (name.clone(), read(&files, name)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let golden: Value = serde_json::from_str(include_str!("../../tests/golden/config-drive.json"))
        .expect("the text is JSON");
    assert_eq!(newest, golden, "{newest:#}");
    assert_eq!(files["openstack/latest/user_data"], b"#cloud-config\n");
    assert_eq!(files["ec2/latest/user-data"], b"#cloud-config\n");
}

#[test]
fn the_drive_has_the_names_of_the_security_groups() {
    let mut definition = definition();
    definition.config.guest.security_groups = vec!["web".into(), "default".into()];
    let files = files_of(&definition);
    let data = read(&files, "ec2/latest/meta-data.json");
    assert_eq!(data["security-groups"], json!(["web", "default"]));
}

/// The paths are upstream's (`InstanceMetadata` and `metadata_for_config_drive` in `nova/api/metadata/base.py`).
#[test]
fn injected_files_are_on_the_drive_and_listed() {
    let mut definition = definition();
    let file =
        |path: &str, contents: &str| InjectedFile { path: path.into(), contents: contents.into() };
    definition.config.guest.files = vec![file("/etc/motd", "SGVsbG8K"), file("../../x", "")];
    let files = files_of(&definition);
    assert_eq!(files["openstack/content/0000"], b"Hello\n");
    assert_eq!(files["openstack/content/0001"], b"");
    for version in ["2012-08-10", "2025-04-04", "latest"] {
        let data = read(&files, &format!("openstack/{version}/meta_data.json"));
        let listed = json!([
            {"path": "/etc/motd", "content_path": "/content/0000"},
            {"path": "../../x", "content_path": "/content/0001"},
        ]);
        assert_eq!(data["files"], listed, "{version}");
    }
    assert!(!format!("{definition:?}").contains("SGVsbG8K"), "contents are not logged");
    definition.config.guest.files = vec![file("/a", "not base64!")];
    let invalid = super::files(&definition, &DisksConfig::default(), Vendordata::default(), "")
        .expect_err("the content is invalid");
    assert!(invalid.to_string().contains("is not base64"), "{invalid}");
}

#[test]
fn each_version_has_the_keys_of_its_date() {
    let files = files_of(&definition());
    let has =
        |version: &str, name: &str| files.contains_key(&format!("openstack/{version}/{name}"));
    assert!(has("2012-08-10", "meta_data.json") && has("2012-08-10", "user_data"));
    assert!(!has("2013-04-04", "vendor_data.json") && has("2013-10-17", "vendor_data.json"));
    assert!(!has("2013-10-17", "network_data.json") && has("2015-10-15", "network_data.json"));
    assert!(!has("2016-06-30", "vendor_data2.json") && has("2016-10-06", "vendor_data2.json"));
    for (key, before, since) in [
        ("random_seed", "2012-08-10", "2013-04-04"),
        ("project_id", "2013-10-17", "2015-10-15"),
        ("devices", "2015-10-15", "2016-06-30"),
        ("dedicated_cpus", "2018-08-27", "2020-10-14"),
    ] {
        let of = |version: &str| read(&files, &format!("openstack/{version}/meta_data.json"));
        assert!(of(before).get(key).is_none() && of(since).get(key).is_some(), "{key}");
    }
}

#[test]
fn a_plain_guest_has_little_metadata() {
    let mut plain = definition();
    plain.config.guest =
        GuestMetadata { hostname: "db.example.org".into(), ..GuestMetadata::default() };
    plain.config.interfaces.clear();
    let files = files_of(&plain);
    assert!(files.keys().all(|name| !name.ends_with("user_data") && !name.ends_with("user-data")));
    let declared = read(&files, "openstack/latest/meta_data.json");
    assert_eq!(declared["hostname"], "db.example.org", "a domain is kept");
    assert!(declared.get("meta").is_none() && declared.get("public_keys").is_none());
    let network = read(&files, "openstack/latest/network_data.json");
    assert_eq!(network, json!({}));
    assert_eq!(hostname("db", ""), "db");
    plain.config.guest.user_data = Some("not base64!".into());
    let file_error = super::files(&plain, &DisksConfig::default(), Vendordata::default(), "")
        .expect_err("the user data is invalid");
    assert!(file_error.to_string().contains("is not base64"), "{file_error}");
}

#[test]
fn the_operators_data_is_on_the_drive() {
    let with = |fixed: Option<Value>| {
        let dynamic = Map::from_iter([("ipam".to_owned(), json!({"zone": "a"}))]);
        let (config, vendordata) = (DisksConfig::default(), Vendordata { fixed, dynamic });
        let files = files(&definition(), &config, vendordata, "c2VlZA==");
        let files = files.expect("the files are made");
        let json = |bytes: Vec<u8>| serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        files.into_iter().map(|(name, bytes)| (name, json(bytes))).collect::<BTreeMap<_, _>>()
    };
    let files = with(Some(json!({"rack": 7})));
    assert_eq!(files["openstack/latest/vendor_data.json"], json!({"rack": 7}));
    assert_eq!(
        files["openstack/latest/vendor_data2.json"],
        json!({"static": {"rack": 7}, "ipam": {"zone": "a"}})
    );
    let files = with(None);
    assert!(!files.contains_key("openstack/latest/vendor_data.json"), "the provider is off");
    assert_eq!(files["openstack/latest/vendor_data2.json"], json!({"ipam": {"zone": "a"}}));
}
