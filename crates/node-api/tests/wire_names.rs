//! The JSON names that controllers and agents of different versions exchange.
//!
//! Each test parses a document in its wire form and serializes it again. A renamed field would be
//! missing from the result.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use kilonova_node_api::{
    Authorities, Batch, Credential, Desired, Join, Observation, OrderResult, Registration, Reply,
    Revocations, Session,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const SERVER: &str = "6b2ed9a4-0f4f-4b0e-9d0c-0a4c0f4b7d11";
const OTHER: &str = "d2a1f5d0-6f6c-4c6a-8f0b-0d6f3f8f5b22";

fn assert_round_trip<T: Serialize + DeserializeOwned>(text: Value) {
    let read: T = serde_json::from_value(text.clone()).expect("the document is readable");
    let written = serde_json::to_value(&read).expect("the document is writable");
    assert_eq!(written, text);
}

/// One volume per protocol.
fn volumes() -> Value {
    let volume = |device: &str, connection: Value| {
        json!({
            "volume_id": OTHER, "attachment_id": SERVER, "device": device, "bus": "virtio",
            "size_gb": 1, "connection": connection,
        })
    };
    let path = json!({"portal": "192.0.2.9:3260", "iqn": "iqn.2010-10.org.openstack:v", "lun": 1});
    let portal = json!({"address": "192.0.2.9", "port": 4420, "transport": "tcp"});
    let mut rich = volume(
        "sdb",
        json!({
            "protocol": "rbd", "name": "volumes/volume-1",
            "hosts": [{"name": "192.0.2.9", "port": 6789}], "auth": true, "user": "cinder",
            "secret": OTHER, "readonly": true, "discard": true, "qos": {"total_iops_sec": 5},
            "logical_block_size": 512, "physical_block_size": 4096,
        }),
    );
    for (name, value) in [
        ("medium", json!("cdrom")),
        ("boot_index", json!(0)),
        ("tag", json!("t")),
        ("shareable", json!(true)),
    ] {
        rich[name] = value;
    }
    json!([
        rich,
        volume(
            "vdb",
            json!({
                "protocol": "iscsi", "paths": [path], "chap": {"user": "u", "password": "p"},
            })
        ),
        volume(
            "vdc",
            json!({
                "protocol": "nfs", "export": "192.0.2.9:/e", "name": "volume-1", "options": "-o v4",
                "format": "raw",
            })
        ),
        volume(
            "vdd",
            json!({
                "protocol": "nvmeof", "nqn": "nqn.2014-08.org:x", "uuid": OTHER, "namespace": 1,
                "portals": [portal],
            })
        ),
        volume("vde", json!({"protocol": "local", "device_path": "/dev/vg/v"})),
    ])
}

/// One report per state and source.
fn volume_states() -> Value {
    let host = json!({"name": "192.0.2.9", "port": 6789});
    let sources = [
        json!({
            "type": "rbd", "name": "volumes/volume-1", "hosts": [host], "user": "cinder",
            "secret": OTHER,
        }),
        json!({
            "type": "iscsi", "iqn": "iqn.2010-10.org.openstack:v", "lun": 1, "portal": host,
            "initiator": "iqn.1993-08.org.debian:01:a", "user": "u", "secret": OTHER,
        }),
        json!({"type": "block", "path": "/dev/disk/by-path/x"}),
        json!({"type": "file", "path": "/mnt/0/volume-1", "format": "qcow2"}),
    ];
    let attached = sources.map(|source| {
        json!({
            "volume_id": OTHER, "attachment_id": SERVER, "state": "attached", "device": "vdb",
            "source": source,
        })
    });
    let failed = json!({
        "volume_id": OTHER, "attachment_id": SERVER, "state": "failed", "reason": "no path",
    });
    let held = json!({"volume_id": OTHER, "state": "held", "device": "vdc", "reason": "busy"});
    let small = json!({
        "volume_id": OTHER, "attachment_id": SERVER, "state": "attached", "device": "vdb",
        "source": {"type": "block", "path": "/dev/x"}, "not_grown": "QEMU refuses",
    });
    Value::Array(attached.into_iter().chain([failed, held, small]).collect())
}

#[test]
fn a_volume_of_a_newer_control_plane_is_readable() {
    let mut all = volumes();
    all[0]["connection"] = json!({"protocol": "carrier_pigeon", "loft": 7, "readonly": true});
    let read: Vec<kilonova_node_api::Volume> =
        serde_json::from_value(all).expect("the volumes are readable");
    assert_eq!(read[0].connection.target, kilonova_node_api::Target::Unknown);
    assert!(read[0].connection.readonly);
}

#[test]
fn the_connector_has_the_names_of_cinder() {
    assert_round_trip::<kilonova_node_api::Connector>(json!({
        "host": "a", "ip": "192.0.2.1", "platform": "x86_64", "os_type": "linux",
        "initiator": "iqn.1993-08.org.debian:01:a", "multipath": true, "enforce_multipath": true,
        "do_local_attach": false, "nqn": "nqn.2014-08.org.nvmexpress:uuid:a", "nvme_hostid": OTHER,
        "nvme_native_multipath": true, "system uuid": OTHER, "wwpns": ["a"], "wwnns": ["b"],
    }));
    let least = json!({"host": "a", "multipath": false, "do_local_attach": false});
    assert_round_trip::<kilonova_node_api::Connector>(least);
}

#[test]
fn a_document_keeps_its_names() {
    let mdev = json!({
        "type": "mdev", "uuid": OTHER, "parent": "0000:84:00.0", "mdev_type": "nvidia-35",
    });
    let vfio = json!({"type": "vfio", "address": "0000:84:00.1", "vgpu_type": "nvidia-558"});
    let machine = json!({
        "machine_type": "q35", "firmware": "uefi", "secure_boot": "optional", "disk_bus": "virtio",
        "cdrom_bus": "sata", "scsi_model": "virtio-scsi", "vif_model": "virtio",
        "vif_multiqueue": true, "video_model": "vga", "video_ram_mb": 16, "rng": true,
        "watchdog": "reset", "guest_agent": true, "boot_menu": true, "hide_hypervisor": true,
        "topology": {"sockets": 1, "cores": 2, "threads": 1}, "os_type": "linux",
        "kernel": OTHER, "ramdisk": OTHER, "command_line": "quiet", "config_drive": true,
    });
    let domain = json!({
        "state": "present", "name": "instance-0000001a", "display_name": "web", "vcpus": 2,
        "memory_mb": 1024,
        "boot": {"image": OTHER, "root_gb": 1, "ephemeral_gb": 2, "swap_mb": 3, "rebuilt": OTHER},
        "machine": machine,
        "guest": {
            "hostname": "web", "project": "p",
            "keys": [{"name": "k", "kind": "ssh", "public_key": "ssh-ed25519 A"}],
            "user_data": "eA==", "metadata": {"a": "b"}, "availability_zone": "nova",
            "launch_index": 1, "reservation": "r-1", "flavor": "m1",
            "images": {"machine": 1, "kernel": 2, "ramdisk": 3}, "dedicated_cpus": [0, 2],
            "security_groups": ["default"], "dynamic_vendordata": true,
            "files": [{"path": "/etc/motd", "contents": "eA=="}],
        },
        "power": "as_is", "starts_paused": true, "existing": true,
        "verb": [OTHER, {"snapshot": {"image": OTHER}}],
        "devices": [
            mdev,
            {"type": "pci", "address": "0000:01:00.0"},
            {"type": "test_pci", "address": "0000:0c:00.0"},
        ],
        "interfaces": [{
            "port": OTHER, "mac": "fa:16:3e:00:00:01", "network": OTHER, "network_type": "vlan",
            "physical_network": "physnet1", "vlan": 7, "mtu": 1500,
            "addresses": [{
                "address": "10.0.0.5", "prefix": 24, "gateway": "10.0.0.1", "dns": ["10.0.0.2"],
                "routes": [["10.1.0.0/24", "10.0.0.3"]], "dhcp": true, "dhcp_server": "10.0.0.2",
            }],
            "device": "0000:01:00.0", "tag": "t", "dhcp_mac": "fa:16:3e:00:00:02",
        }, {
            "port": OTHER, "mac": "fa:16:3e:00:00:03", "network": OTHER, "network_type": "vxlan",
            "physical_network": "", "mtu": 1450, "addresses": [],
            "vif": {"type": "ovs", "bridge": "br-int"},
        }, {
            "port": OTHER, "mac": "fa:16:3e:00:00:04", "network": OTHER, "network_type": "vlan",
            "physical_network": "physnet1", "mtu": 1500, "addresses": [],
            "vif": {"type": "macvtap", "source": "up0.7", "mode": "bridge"},
        }],
        "from": {"host": "a", "address": "192.0.2.1"},
        "departure": {
            "to": {"host": "b", "address": "192.0.2.2"}, "devices": [[mdev, vfio]], "force": true,
            "volumes": volume_states(),
        },
        "rescue": {
            "image": OTHER, "device": {"medium": "cdrom", "bus": "usb"}, "machine": {"rng": true},
        },
        "volumes": volumes(),
    });
    let absent = json!({"state": "absent"});
    let rule = |remote: Value| {
        json!({
            "direction": "ingress", "six": true, "protocol": 6, "first": 1, "last": 2,
            "remote": remote,
        })
    };
    let prefix = json!({"address": "10.0.0.0", "length": 24});
    assert_round_trip::<Batch>(json!({
        "generation": 9, "complete": true,
        "documents": [
            {"server": SERVER, "generation": 8, "desired": domain},
            {"server": OTHER, "generation": 9, "desired": absent},
        ],
        "held": [OTHER],
        "orders": [
            {"id": OTHER, "generation": 7, "server": SERVER, "device": "0000:5e:00.0",
             "task": {"task": "program", "driver": "intel", "image": OTHER}},
            {"id": SERVER, "generation": 7, "device": "0000:01:00.0",
             "task": {"task": "clean", "address": "0000:01:00.0", "resource_class": "CUSTOM_NVME"}},
        ],
        "questions": [
            {"id": OTHER, "server": SERVER, "topic": {"topic": "console", "lines": 10}},
            {"id": SERVER, "server": SERVER, "topic": {"topic": "diagnostics"}},
        ],
        "consoles": [
            {"id": OTHER, "server": SERVER, "kind": "vnc", "connect": true,
             "controller": {"hosts": "https://192.0.2.1:8775", "api": "http://192.0.2.1:8774"}},
            {"id": SERVER, "server": SERVER, "kind": "serial", "connect": false, "controller": {}},
        ],
        "filters": {
            "ports": [{"port": OTHER, "up": true, "secure": true, "groups": [OTHER],
                       "pairs": [{"mac": "fa:16:3e:00:00:03", "prefix": prefix}]}],
            "groups": [{
                "id": OTHER,
                "rules": [rule(json!({"prefix": prefix})), rule(json!({"group": OTHER}))],
            }],
            "members": [{"group": OTHER, "addresses": [prefix]}],
        },
        "register": true,
    }));
}

/// Rows that earlier builds wrote: a rewritten document has the same bytes.
#[test]
fn stored_documents_keep_their_bytes() {
    for line in include_str!("golden/documents.jsonl").lines() {
        let read: Desired = serde_json::from_str(line).expect("the row is readable");
        assert_eq!(serde_json::to_string(&read).expect("the document is writable"), line);
    }
}

#[test]
fn a_document_may_lack_what_has_a_default_and_have_what_is_unknown() {
    let least = json!({
        "state": "present", "name": "instance-0000001b", "display_name": "plain", "vcpus": 1,
        "memory_mb": 64, "boot": {"root_gb": 1, "ephemeral_gb": 0, "swap_mb": 0}, "power": "off",
        "devices": [],
    });
    let plain: Desired = serde_json::from_value(least.clone()).expect("the document is readable");
    let mut newer = least.clone();
    newer["unknown"] = json!({"a": [1]});
    newer["interfaces"] = json!([]);
    newer["rescue"] = Value::Null;
    let newer: Desired = serde_json::from_value(newer).expect("the document is readable");
    assert_eq!(newer, plain);
    for member in ["name", "display_name", "vcpus", "memory_mb", "boot", "power", "devices"] {
        let mut lacking = least.clone();
        lacking.as_object_mut().expect("the document is an object").remove(member);
        let error = serde_json::from_value::<Desired>(lacking).expect_err("the member is required");
        assert_eq!(error.to_string(), format!("missing field `{member}`"));
    }
}

#[test]
fn powers_and_verbs_keep_their_names() {
    for power in ["on", "paused", "suspended", "off", "incoming", "as_is"] {
        assert_round_trip::<kilonova_node_api::Power>(json!(power));
    }
    for verb in ["reboot_soft", "reboot_hard", "crash_dump"] {
        assert_round_trip::<kilonova_node_api::Verb>(json!(verb));
    }
}

#[test]
fn an_observation_keeps_its_names() {
    let progress = json!({
        "outcome": "departing", "memory_total": 1, "memory_processed": 2, "memory_remaining": 3,
        "disk_total": 4, "disk_processed": 5, "disk_remaining": 6,
    });
    let outcomes = ["running", "paused", "suspended", "stopped", "ready", "departed", "absent"]
        .map(|outcome| json!({"outcome": outcome}));
    let phases = ["copying", "sending", "spawning"]
        .map(|phase| json!({"outcome": "working", "phase": phase}));
    let failed = json!({"outcome": "failed", "step": "define", "message": "no"});
    for outcome in outcomes.into_iter().chain(phases).chain([progress, failed]) {
        assert_round_trip::<Observation>(json!({
            "server": SERVER, "generation": 3, "outcome": outcome, "at_start": true,
            "volumes": volume_states(),
        }));
    }
}

#[test]
fn a_registration_keeps_its_names() {
    let device = |kind: &str, health: Value| {
        json!({
            "address": "0000:84:00.1", "card": "0000:84:00.0", "kind": kind, "vendor_id": "10de",
            "product_id": "13bd", "model": "M10", "numa_node": -1, "health": health,
            "switch": "0000:81:00.0", "peers": ["0000:85:00.0"],
            "deployables": [{
                "name": "pci_0000_84_00_1", "resource_class": "VGPU", "traits": ["CUSTOM_A"],
                "driver": "nvidia", "facts": {"on_release": "clean"},
                "slots": [
                    {"type": "mdev", "mdev_type": "nvidia-35", "count": 2},
                    {"type": "pci", "address": "0000:84:00.1"},
                    {"type": "vfio", "address": "0000:84:00.1", "vgpu_type": "nvidia-558"},
                    {"type": "test_pci", "address": "0000:84:00.1"},
                ],
            }],
        })
    };
    let healthy = json!({"state": "healthy"});
    let degraded = json!({"state": "degraded", "reason": "a link is slow"});
    let failed = json!({"state": "failed", "reason": "an AER error", "since": 1});
    assert_round_trip::<Registration>(json!({
        "host": "a", "machine_id": "4f0c", "hypervisor_type": "QEMU", "hypervisor_version": 8002002,
        "host_ip": "192.0.2.1", "vcpus": 4, "memory_mb": 1024, "disk_gb": 10,
        "ratios": [4.0, 1.0, 1.5], "reserved_memory_mb": 512, "traits": ["COMPUTE_NODE"],
        "devices": [
            device("GPU", healthy.clone()), device("FPGA", degraded), device("NIC", failed),
            device("QAT", healthy.clone()), device("SSD", healthy.clone()),
            device("MDEV", healthy.clone()), device("PCI", healthy),
        ],
    }));
    assert_round_trip::<Registration>(json!({
        "host": "a", "hypervisor_type": "QEMU", "hypervisor_version": 8002002,
        "host_ip": "192.0.2.1", "vcpus": 4, "memory_mb": 1024, "disk_gb": 10,
        "ratios": [4.0, 1.0, 1.5], "initial_ratios": [true, false, true], "reserved_memory_mb": 512,
        "traits": [], "devices": [],
        "agent_version": "1.2.3",
        "cells": [
            {
                "id": 0, "shared": "0", "dedicated": "1-3", "cores": ["0-1", "2-3"], "socket": 0,
                "memory_mb": 1024, "distances": [10, 21],
                "pages": [
                    {"size_kib": 4, "total": 131072},
                    {"size_kib": 2048, "total": 256, "reserved": 8},
                ],
            },
            {"id": 1, "shared": "", "dedicated": "", "cores": [], "memory_mb": 0},
        ],
    }));
    assert_round_trip::<Session>(json!({"epoch": 5}));
    assert_round_trip::<Session>(json!({"epoch": 5, "undivided": true}));
}

#[test]
fn an_order_result_keeps_its_names() {
    for end in [
        json!({"end": "done", "output": "ok"}),
        json!({"end": "failed", "message": "no", "output": "bad"}),
    ] {
        assert_round_trip::<OrderResult>(json!({"order": OTHER, "end": end}));
    }
}

#[test]
fn a_reply_keeps_its_names() {
    let disk = json!({
        "name": "vda", "read_bytes": 1, "read_requests": 2, "write_bytes": 3, "write_requests": 4,
        "errors": 5,
    });
    let usage = json!({
        "said": "diagnostics", "driver": "libvirt", "hypervisor": "kvm", "hypervisor_os": "linux",
        "state": "running", "uptime": 6, "cpu_ns": [7], "memory_mb": 8, "memory_used_mb": 9,
        "disks": [disk],
    });
    let console = json!({"said": "console", "text": "login:"});
    let unknown = json!({"said": "unknown", "why": "the guest is shut off"});
    for message in [usage, console, unknown] {
        assert_round_trip::<Reply>(json!({"id": OTHER, "said": message}));
    }
}

#[test]
fn the_documents_of_enrolment_keep_their_names() {
    assert_round_trip::<Join>(json!({
        "secret": "s", "host": "a", "request": {"csr": "PEM", "addresses": ["192.0.2.1"]},
    }));
    assert_round_trip::<Authorities>(json!({"authorities": "PEM", "signing": "ab"}));
    assert_round_trip::<Credential>(json!({"certificate": "PEM", "authority": "PEM"}));
    assert_round_trip::<Revocations>(json!({
        "crl": "PEM", "mark": "m", "renew_at": 1, "revoked": [{"serial": "0a", "host": "a"}],
    }));
}
