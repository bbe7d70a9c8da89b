//! Cinder's `connection_info` as its drivers write it, and refused connections.

use serde_json::json;

use super::*;

fn parse(info: Value) -> Connection {
    Connection::parse(&info).expect("the connection is supported")
}

fn refused(info: Value) -> String {
    Connection::parse(&info).expect_err("the connection is refused").to_string()
}

/// The answer of Cinder 29 for an attachment on Ceph.
fn ceph() -> Value {
    json!({
        "driver_volume_type": "rbd", "name": "volumes/volume-1", "hosts": ["192.0.2.9", "[fd00::9]"],
        "ports": ["6789", "6790"], "cluster_name": "ceph", "auth_enabled": true,
        "auth_username": "cinder", "secret_type": "ceph",
        "secret_uuid": "d2a1f5d0-6f6c-4c6a-8f0b-0d6f3f8f5b22", "volume_id": "v", "discard": true,
        "keyring": null, "qos_specs": null, "access_mode": "rw", "encrypted": false,
        "cacheable": false, "enforce_multipath": false, "attachment_id": "a",
    })
}

fn san() -> Value {
    json!({
        "driver_volume_type": "iscsi", "target_discovered": false,
        "target_portal": "192.0.2.9:3260", "target_iqn": "iqn.2010-10.org.openstack:volume-1",
        "target_lun": 1, "auth_method": "CHAP", "auth_username": "me",
        "auth_password": "open sesame", "discard": false, "access_mode": "ro",
        "qos_specs": {
            "total_iops_sec": "500", "read_bytes_sec": 1048576, "size_iops_sec": "4096",
            "consumer": "front-end",
        },
        "encrypted": false, "logical_block_size": "512", "physical_block_size": 4096,
    })
}

#[test]
fn ceph_is_parsed() {
    let connection = parse(ceph());
    let Target::Rbd(rbd) = &connection.target else { panic!("{connection:?}") };
    let hosts: Vec<_> = rbd.hosts.iter().map(|host| (host.name.as_str(), host.port)).collect();
    assert_eq!(hosts, [("192.0.2.9", 6789), ("fd00::9", 6790)]);
    assert_eq!((rbd.name.as_str(), rbd.auth), ("volumes/volume-1", true));
    assert_eq!(rbd.user.as_deref(), Some("cinder"));
    assert!(rbd.secret.is_some() && connection.discard && !connection.readonly);
    let mut open = ceph();
    (open["secret_uuid"], open["auth_enabled"]) = (Value::Null, json!(false));
    let Target::Rbd(rbd) = parse(open).target else { panic!("RBD") };
    assert_eq!((rbd.secret, rbd.auth), (None, false));
}

#[test]
fn iscsi_is_parsed_and_its_password_hidden() {
    let connection = parse(san());
    assert!(connection.readonly && !connection.discard);
    assert_eq!(connection.logical_block_size, Some(512));
    assert_eq!(connection.physical_block_size, Some(4096));
    let limits: Vec<_> = connection.qos.iter().map(|(name, limit)| (&**name, *limit)).collect();
    assert_eq!(
        limits,
        [("read_bytes_sec", 1_048_576), ("size_iops_sec", 4096), ("total_iops_sec", 500)]
    );
    assert!(!format!("{connection:?}").contains("sesame"));
    let Target::Iscsi(iscsi) = &connection.target else { panic!("{connection:?}") };
    assert_eq!(iscsi.paths.len(), 1);
    let host = SourceHost { name: "192.0.2.9".into(), port: 3260 };
    assert_eq!(iscsi.paths[0].host(), Some(host));
    let secret = |one: &Connection| match &one.target {
        Target::Iscsi(Iscsi { chap: Some(chap), .. }) => chap.password.reveal().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(secret(&connection), "open sesame");
    let plain = connection.without_secrets();
    assert_eq!(secret(&plain), "");
    let text = serde_json::to_string(&plain).expect("it is writable");
    assert!(!text.contains("password"), "{text}");
    assert_eq!(serde_json::from_str::<Connection>(&text).expect("it is readable"), plain);
}

#[test]
fn several_paths_and_the_older_nesting() {
    let mut many = san();
    many["target_portals"] = json!(["192.0.2.9:3260", "[fd00::9]:3260,1"]);
    many["target_iqns"] = json!(["iqn.2010-10.org.openstack:a", "iqn.2010-10.org.openstack:b"]);
    many["target_luns"] = json!([1, "2"]);
    let nested = json!({"driver_volume_type": "iscsi", "data": many, "serial": "v"});
    let Target::Iscsi(iscsi) = parse(nested).target else { panic!("iSCSI") };
    let luns: Vec<_> = iscsi.paths.iter().map(|path| path.lun).collect();
    assert_eq!(luns, [1, 2]);
    let host = iscsi.paths[1].host();
    assert_eq!(host, Some(SourceHost { name: "fd00::9".into(), port: 3260 }));
}

#[test]
fn files_and_namespaces_are_parsed() {
    let nfs = json!({
        "driver_volume_type": "nfs", "export": "192.0.2.9:/srv/cinder", "name": "volume-1",
        "options": "-o vers=4.2", "format": "qcow2", "mount_point_base": "/elsewhere",
    });
    let Target::Nfs(nfs) = parse(nfs).target else { panic!("NFS") };
    assert_eq!((nfs.options.as_deref(), nfs.format.as_str()), (Some("-o vers=4.2"), "qcow2"));
    let new = json!({
        "driver_volume_type": "nvmeof", "target_nqn": "nqn.2014-08.org:x",
        "vol_uuid": "d2a1f5d0-6f6c-4c6a-8f0b-0d6f3f8f5b22", "portals": [["192.0.2.9", "4420", "tcp"]],
    });
    let Target::Nvmeof(new) = parse(new).target else { panic!("NVMe") };
    assert_eq!(new.portals[0].port, 4420);
    let old = json!({
        "driver_volume_type": "nvmeof", "nqn": "nqn.2014-08.org:x", "target_portal": "192.0.2.9",
        "target_port": 4420, "transport_type": "RoCEv2", "ns_id": 1,
    });
    let Target::Nvmeof(old) = parse(old).target else { panic!("NVMe") };
    assert_eq!((old.portals[0].transport.as_str(), old.namespace), ("rdma", Some(1)));
    let local = json!({"driver_volume_type": "local", "device_path": "/dev/vg/volume-1"});
    assert_eq!(parse(local).target, Target::Local { device_path: "/dev/vg/volume-1".into() });
}

#[test]
fn refusals_name_the_key_and_no_value() {
    let mut encrypted = ceph();
    encrypted["encrypted"] = json!(true);
    assert_eq!(refused(encrypted), "encrypted volumes are not supported");
    let fc = json!({"driver_volume_type": "fibre_channel", "target_wwn": ["50:0"]});
    assert_eq!(refused(fc), "volumes of type fibre_channel are not supported");
    assert!(refused(json!({})).contains("driver_volume_type"));
    assert!(refused(json!([])).contains("driver_volume_type"));
    let cases: [(&str, Value, &str, Value); 14] = [
        ("name", ceph(), "name", json!("volume-1")),
        ("ports", ceph(), "ports", json!(["6789"])),
        ("ports", ceph(), "ports", json!([0, 1])),
        ("hosts", ceph(), "hosts", json!(["a b", "c"])),
        ("secret_uuid", ceph(), "secret_uuid", json!("x")),
        ("target_portal", san(), "target_portal", json!("192.0.2.9")),
        ("target_portal", san(), "target_portal", json!("--help:3260")),
        ("target_iqn", san(), "target_iqn", json!("iqn/../../etc")),
        ("target_lun", san(), "target_lun", json!(-1)),
        ("auth_method", san(), "auth_method", json!("None")),
        ("auth_password", san(), "auth_password", Value::Null),
        ("auth_username", san(), "auth_username", Value::Null),
        ("qos_specs", san(), "qos_specs", json!({"total_iops_sec": "many"})),
        ("logical_block_size", san(), "logical_block_size", json!(513)),
    ];
    for (named, mut info, key, value) in cases {
        info[key] = value;
        let why = refused(info);
        assert!(why.contains(named) && !why.contains("sesame"), "{why}");
    }
    for (key, value) in [
        ("name", json!("../shadow")),
        ("name", json!("..")),
        ("export", json!("192.0.2.9")),
        ("export", json!("-o x:/")),
        ("format", json!("vmdk")),
    ] {
        let mut nfs = json!({
            "driver_volume_type": "nfs", "export": "192.0.2.9:/e", "name": "volume-1",
        });
        nfs[key] = value;
        assert!(refused(nfs).contains(key));
    }
    let outside = json!({"driver_volume_type": "local", "device_path": "/dev/../etc/shadow"});
    assert!(refused(outside).contains("device_path"));
}
