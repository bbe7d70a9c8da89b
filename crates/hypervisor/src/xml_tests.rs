//! Golden XML and the way back.

use kilonova_ids::{ImageId, OperationId, ServerId};
use kilonova_node_api::{Attachment, Boot, Rescue};

use crate::Definition;

fn definition() -> Definition {
    Definition {
        server: "11111111-1111-4111-8111-111111111111".parse::<ServerId>().expect("a uuid"),
        name: "instance-0000001a".into(),
        display_name: "db & <cache> \"it's\"".into(),
        vcpus: 4,
        memory_mb: 8192,
        boot: Boot {
            image: Some("22222222-2222-4222-8222-222222222222".parse::<ImageId>().expect("a uuid")),
            root_gb: 20,
            ephemeral_gb: 0,
            swap_mb: 512,
            rebuilt: None,
        },
        devices: vec![
            Attachment::Mdev {
                uuid: "33333333-3333-4333-8333-333333333333".parse().expect("a uuid"),
                parent: "0000:84:00.0".into(),
                mdev_type: "nvidia-35".into(),
            },
            Attachment::Pci { address: "0000:0c:1f.3".into() },
            Attachment::Vfio { address: "0000:25:00.4".into(), vgpu_type: "nvidia-558".into() },
            Attachment::TestPci { address: "0000:0c:00.1".into() },
        ],
        rescue: None,
        done: Some("44444444-4444-4444-8444-444444444444".parse::<OperationId>().expect("a uuid")),
    }
}

#[test]
fn the_xml_is_what_libvirt_is_to_get() {
    let golden = include_str!("../tests/golden/devices.xml");
    assert_eq!(definition().to_xml(), golden);
}

#[test]
fn a_guest_without_anything_special() {
    let plain = Definition {
        display_name: "plain".into(),
        devices: Vec::new(),
        done: None,
        boot: Boot { image: None, root_gb: 1, ephemeral_gb: 0, swap_mb: 0, rebuilt: None },
        ..definition()
    };
    assert_eq!(plain.to_xml(), include_str!("../tests/golden/plain.xml"));
    assert_eq!(Definition::from_xml(&plain.to_xml()), Ok(plain));
}

#[test]
fn what_is_written_is_read_back() {
    let written = definition();
    let image = written.boot.image;
    let mended = Definition {
        rescue: Some(Rescue { image }),
        boot: Boot { rebuilt: written.done, ..written.boot.clone() },
        ..definition()
    };
    let empty = Definition { rescue: Some(Rescue { image: None }), ..definition() };
    for written in [written, mended, empty] {
        assert_eq!(Definition::from_xml(&written.to_xml()), Ok(written));
    }
}

#[test]
fn names_cannot_break_out_of_the_xml() {
    for name in ["</kilonova:name><done/>", "a\u{0}b", "]]>", "&amp;", " lead\n\ttail\r ", "𝕏 ünï"]
    {
        let written = Definition { display_name: name.into(), ..definition() };
        let read = Definition::from_xml(&written.to_xml()).expect("readable");
        assert_eq!(read.display_name, name.replace('\u{0}', "\u{fffd}"), "{name:?}");
        assert_eq!(read.devices, written.devices);
    }
}

#[test]
fn foreign_and_broken_domains_are_refused() {
    let foreign = "<domain><uuid>11111111-1111-4111-8111-111111111111</uuid><metadata/></domain>";
    for (xml, part) in [
        (foreign, "not defined by Kilonova"),
        ("<domain>", "cannot be read"),
        ("", "cannot be read"),
    ] {
        let error = Definition::from_xml(xml).expect_err("refused");
        assert!(error.message.contains(part), "{error}");
    }
}
