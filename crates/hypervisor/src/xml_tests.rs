//! Golden XML and the round trip.

use kilonova_ids::{ImageId, OperationId, ServerId};
use kilonova_node_api::{
    Address, Attachment, Boot, Bus, DomainConfig, Firmware, GuestMetadata, GuestNuma,
    GuestNumaCell, Interface, Key, Machine, MacvtapMode, Medium, Rescue, RescueDevice, Vif, Volume,
    VolumeSource,
};

use crate::Definition;

fn definition() -> Definition {
    Definition {
        server: "11111111-1111-4111-8111-111111111111"
            .parse::<ServerId>()
            .expect("the value is a UUID"),
        config: DomainConfig {
            name: "instance-0000001a".into(),
            display_name: "db & <cache> \"it's\"".into(),
            vcpus: 4,
            memory_mb: 8192,
            boot: Boot {
                image: Some(
                    "22222222-2222-4222-8222-222222222222"
                        .parse::<ImageId>()
                        .expect("the value is a UUID"),
                ),
                root_gb: 20,
                ephemeral_gb: 0,
                swap_mb: 512,
                rebuilt: None,
            },
            devices: vec![
                Attachment::Mdev {
                    uuid: "33333333-3333-4333-8333-333333333333"
                        .parse()
                        .expect("the value is a UUID"),
                    parent: "0000:84:00.0".into(),
                    mdev_type: "nvidia-35".into(),
                },
                Attachment::Pci { address: "0000:0c:1f.3".into() },
                Attachment::Vfio {
                    address: "0000:25:00.4".into(),
                    vgpu_type: "nvidia-558".into(),
                    instance: None,
                },
                Attachment::TestPci { address: "0000:0c:00.1".into() },
            ],
            interfaces: Vec::new(),
            machine: Machine::default(),
            guest: GuestMetadata::default(),
            rescue: None,
            volumes: Vec::new(),
            numa: None,
        },
        done: Some(
            "44444444-4444-4444-8444-444444444444"
                .parse::<OperationId>()
                .expect("the value is a UUID"),
        ),
        sources: Default::default(),
        kept_machine_type: None,
    }
}

#[test]
fn the_xml_matches_the_golden_file() {
    let golden = include_str!("../tests/golden/devices.xml");
    assert_eq!(definition().to_xml(), golden);
}

fn changed(change: impl FnOnce(&mut DomainConfig)) -> Definition {
    let mut definition = definition();
    change(&mut definition.config);
    definition
}

fn plain() -> Definition {
    let small = changed(|config| {
        config.display_name = "plain".into();
        config.devices = Vec::new();
        config.boot = Boot { image: None, root_gb: 1, ephemeral_gb: 0, swap_mb: 0, rebuilt: None };
    });
    Definition { done: None, ..small }
}

#[test]
fn a_guest_without_anything_special() {
    let plain = plain();
    assert_eq!(plain.to_xml(), include_str!("../tests/golden/plain.xml"));
    assert_eq!(Definition::from_xml(&plain.to_xml()), Ok(plain));
}

#[test]
fn definitions_survive_a_round_trip() {
    let written = definition();
    let image = written.config.boot.image;
    let rebuilt = changed(|config| {
        config.rescue = Some(Rescue { image, ..Rescue::default() });
        config.boot.rebuilt = written.done;
    });
    let empty = changed(|config| config.rescue = Some(Rescue::default()));
    let machine = Machine {
        machine_type: Some("q35".into()),
        firmware: Some(Firmware::Uefi),
        disk_bus: Some(Bus::Scsi),
        kernel: image,
        command_line: Some("console=ttyS0 a='<b>' \"c\" & d".into()),
        config_drive: true,
        ..Machine::default()
    };
    let device = RescueDevice { medium: Medium::Cdrom, bus: Some(Bus::Usb) };
    let complete = changed(|config| {
        config.machine = machine.clone();
        config.guest = GuestMetadata {
            hostname: "db".into(),
            keys: vec![Key {
                name: "me & you".into(),
                kind: "ssh".into(),
                public_key: "ssh-ed25519 AAAA me@here".into(),
            }],
            user_data: Some("IyEvYmluL3NoCg==".into()),
            metadata: [("a<b".into(), "line\nline".into())].into(),
            ..GuestMetadata::default()
        };
        config.rescue = Some(Rescue { image, device: Some(device), machine });
    });
    for written in [written, rebuilt, empty, complete, with_volumes().without_secrets()] {
        assert_eq!(Definition::from_xml(&written.to_xml()), Ok(written));
    }
}

/// Two volumes, one of which is connected.
fn with_volumes() -> Definition {
    let volume = |digit: &str, device: &str, connection: serde_json::Value| -> Volume {
        let id = |tail: &str| format!("{}{tail}", digit.repeat(8));
        serde_json::from_value(serde_json::json!({
            "volume_id": id("-7777-4777-8777-777777777777"),
            "attachment_id": id("-8888-4888-8888-888888888888"),
            "device": device, "bus": "virtio", "size_gb": 1, "shareable": true,
            "connection": connection,
        }))
        .expect("the volume is readable")
    };
    let mut guest = changed(|config| {
        let target = serde_json::json!({
            "protocol": "iscsi",
            "paths": [{"portal": "192.0.2.9:3260", "iqn": "iqn.2010-10.org.openstack:v", "lun": 1}],
            "chap": {"user": "me", "password": "open sesame"}, "readonly": true,
        });
        let other = serde_json::json!({"protocol": "local", "device_path": "/dev/sdz"});
        config.volumes = vec![volume("a", "vdb", target), volume("b", "vdc", other)];
    });
    let path = "/dev/disk/by-path/ip-192.0.2.9:3260-iscsi-iqn.2010-10.org.openstack:v-lun-1".into();
    guest.sources.insert(guest.config.volumes[0].volume_id, VolumeSource::Block { path });
    guest
}

#[test]
fn volumes_are_recorded_without_their_secrets() {
    let guest = with_volumes();
    let xml = guest.to_xml();
    assert!(!xml.contains("sesame"), "{xml}");
    assert_eq!(Definition::from_xml(&xml), Ok(guest.without_secrets()));
    assert_eq!(guest.connected().count(), 1);
    let (from, to) = (xml.find("    <disk ").expect("a disk"), xml.find("  </devices>"));
    assert_eq!(
        xml[from..to.expect("the devices end")].lines().take(10).collect::<Vec<_>>(),
        [
            "    <disk type='block' device='disk'>",
            "      <driver name='qemu' type='raw' cache='none'/>",
            "      <source dev='/dev/disk/by-path/ip-192.0.2.9:3260-iscsi-iqn.2010-10.org.openstack:v-lun-1'/>",
            "      <target dev='vdb' bus='virtio'/>",
            "      <serial>aaaaaaaa-7777-4777-8777-777777777777</serial>",
            "      <shareable/>",
            "      <readonly/>",
            "      <alias name='ua-aaaaaaaa-7777-4777-8777-777777777777'/>",
            "    </disk>",
            "    <hostdev mode='subsystem' type='mdev' managed='no' model='vfio-pci'>",
        ]
    );
    let mut moved = guest.clone();
    moved.config.volumes.pop();
    assert!(moved.same_machine(&guest), "volumes are attached to a running guest");
}

#[test]
fn the_cells_of_devices_change_with_the_next_start() {
    let cells = |devices: &[(&str, u32)]| {
        let devices = devices.iter().map(|(key, cell)| ((*key).to_owned(), *cell)).collect();
        let cell = GuestNumaCell { host: 0, vcpus: vec![], memory_mb: 512, page_kib: None };
        let numa = GuestNuma { cells: vec![cell], devices, ..GuestNuma::default() };
        changed(|config| config.numa = Some(Box::new(numa)))
    };
    let seen = cells(&[("0000:0c:1f.3", 0)]);
    assert_eq!(Definition::from_xml(&seen.to_xml()).as_ref(), Ok(&seen));
    let earlier = cells(&[]);
    assert!(seen != earlier && seen.same_machine(&earlier), "an earlier build recorded none");
    let mut moved = earlier.clone();
    moved.config.numa.as_mut().expect("it has cells").cells[0].host = 1;
    assert!(!moved.same_machine(&earlier) && !plain().same_machine(&earlier));
}

#[test]
fn xml_as_libvirt_returns_it_is_parsed() {
    let written = definition();
    let kept = format!(
        "<domain type='qemu' id='3'>\n  <name>{}</name>\n  <uuid>{}</uuid>\n  <metadata>\n{}  \
         </metadata>\n  <memory unit='KiB'>{}</memory>\n  <vcpu placement='static'>{}</vcpu>\n</domain>",
        written.config.name,
        written.server,
        written.to_metadata(),
        written.config.memory_mb * 1024,
        written.config.vcpus
    );
    assert_eq!(Definition::from_xml(&kept), Ok(written.clone()));
    let odd = kept.replace("unit='KiB'", "unit='GiB'");
    assert!(Definition::from_xml(&odd).is_err(), "an unknown unit is an error");
}

#[test]
fn names_cannot_break_out_of_the_xml() {
    for name in ["</kilonova:name><done/>", "a\u{0}b", "]]>", "&amp;", " lead\n\ttail\r ", "𝕏 ünï"]
    {
        let written = changed(|config| config.display_name = name.into());
        let read = Definition::from_xml(&written.to_xml()).expect("the XML is readable");
        assert_eq!(read.config.display_name, name.replace('\u{0}', "\u{fffd}"), "{name:?}");
        assert_eq!(read.config.devices, written.config.devices);
    }
}

#[test]
fn foreign_and_broken_domains_are_refused() {
    let foreign = "<domain><uuid>11111111-1111-4111-8111-111111111111</uuid><metadata/></domain>";
    for (xml, part) in [
        (foreign, "not defined by Kilonova"),
        ("<domain>", "could not parse"),
        ("", "could not parse"),
    ] {
        let error = Definition::from_xml(xml).expect_err("the XML is refused");
        assert!(error.message.contains(part), "{error}");
    }
}

#[test]
fn interfaces_are_taps_or_functions() {
    let plugged = Interface {
        port: "55555555-5555-4555-8555-555555555555".parse().expect("the value is a UUID"),
        mac: "fa:16:3e:00:00:01".into(),
        network: "66666666-6666-4666-8666-666666666666".parse().expect("the value is a UUID"),
        network_type: "vlan".into(),
        physical_network: "physnet1".into(),
        vlan: Some(100),
        mtu: 1500,
        addresses: vec![Address {
            address: "10.0.0.2".parse().expect("the address is valid"),
            prefix: 24,
            gateway: Some("10.0.0.1".parse().expect("the address is valid")),
            dns: Vec::new(),
            routes: Vec::new(),
            dhcp: true,
            dhcp_server: None,
            six: None,
            floating: Vec::new(),
        }],
        device: None,
        tag: None,
        dhcp_mac: None,
        vif: None,
    };
    let passed = Interface {
        port: "77777777-7777-4777-8777-777777777777".parse().expect("the value is a UUID"),
        mac: "fa:16:3e:00:00:02".into(),
        addresses: Vec::new(),
        device: Some("0000:0c:1f.3".into()),
        tag: Some("fast & 'good'".into()),
        ..plugged.clone()
    };
    let mut connected = plain();
    connected.config.devices = vec![Attachment::Pci { address: "0000:0c:1f.3".into() }];
    connected.config.interfaces = vec![plugged, passed];
    assert_eq!(connected.to_xml(), include_str!("../tests/golden/connected.xml"));
    assert_eq!(Definition::from_xml(&connected.to_xml()), Ok(connected.clone()));
    let mut external = connected.clone();
    external.config.interfaces.iter_mut().for_each(|one| one.device = None);
    let [one, two] = &mut external.config.interfaces[..] else { panic!("there are two") };
    one.vif = Some(Vif::Ovs { bridge: "br-int".into() });
    two.vif = Some(Vif::Macvtap { source: "up0.100".into(), mode: MacvtapMode::Passthrough });
    let xml = external.to_xml();
    assert!(xml.contains("interfaceid='55555555-5555-4555-8555-555555555555'"), "{xml}");
    assert!(xml.contains("<source dev='up0.100' mode='passthrough'/>"), "{xml}");
    assert_eq!(Definition::from_xml(&xml), Ok(external));
    let mut alone = connected.clone();
    alone.config.interfaces = Vec::new();
    assert!(alone.same_machine(&connected), "interfaces can change under a running guest");
}
