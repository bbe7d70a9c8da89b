//! Tests of the layout of devices, on fixtures of sysfs.

use super::*;
use crate::testing::Fixture;
use crate::{DeviceSpec, Discovery};

const GPU: (&str, &str, &str) = ("10de", "2330", "030200");

/// Moves a function of a fixture below bridges.
fn below(fixture: &Fixture, address: &str, bridges: &str) {
    let path = format!("devices/pci0000:15/{bridges}{address}");
    for (name, text) in [("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200")] {
        fixture.write(&format!("{path}/{name}"), text);
    }
    fixture.link(&format!("bus/pci/devices/{address}"), &path);
}

fn found(fixture: &Fixture, links: &[&str]) -> Vec<Device> {
    let specs = DeviceSpec::parse(r#"{"vendor_id": "10de"}"#).expect("the entry is valid");
    let links: Vec<String> = links.iter().map(|one| (*one).to_owned()).collect();
    let links = Links::parse(&links).expect("the islands are valid");
    let discovery = Discovery { specs, links, ..Discovery::default() };
    discovery.devices(&fixture.sysfs(), &|_| false).expect("sysfs is readable")
}

#[test]
fn the_switch_is_the_outermost_upstream_port() {
    let fixture = Fixture::new();
    below(&fixture, "0000:19:00.0", "0000:15:01.0/0000:16:00.0/0000:17:00.0/");
    below(
        &fixture,
        "0000:1c:00.0",
        "0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:1a:00.0/0000:1b:00.0/",
    );
    below(&fixture, "0000:20:00.0", "0000:15:02.0/");
    below(&fixture, "0000:21:00.0", "0000:15:03.0/0000:22:00.0/");
    below(&fixture, "0000:23:00.0", "");
    fixture.function("0000:40:00.0", GPU, 0, "vfio-pci");
    let found = found(&fixture, &[]);
    let switches: Vec<_> =
        found.iter().map(|one| (one.address.as_str(), one.switch.as_deref())).collect();
    assert_eq!(
        switches,
        [
            ("0000:19:00.0", Some("0000:16:00.0")),
            ("0000:1c:00.0", Some("0000:16:00.0")),
            ("0000:20:00.0", None),
            ("0000:21:00.0", None),
            ("0000:23:00.0", None),
            ("0000:40:00.0", None),
        ]
    );
}

#[test]
fn islands_come_from_the_option_and_hives_from_sysfs() {
    let fixture = Fixture::new();
    for number in 0..6 {
        fixture.function(&format!("0000:4{number}:00.0"), GPU, 0, "vfio-pci");
    }
    for (number, hive) in [(3, "0x1f"), (4, "0x1f"), (5, "0x0")] {
        let path = format!("devices/pci0000:4{number}/0000:4{number}:00.0");
        let path = format!("{path}/xgmi_hive_info/xgmi_hive_id");
        fixture.write(&path, hive);
    }
    let found = found(&fixture, &["00000000:40:00.0, 0000:42:00.0"]);
    let peers: Vec<Vec<String>> = found.iter().map(|one| one.peers.clone()).collect();
    let one = |address: &str| vec![address.to_owned()];
    let none = Vec::new;
    assert_eq!(
        peers,
        [
            one("0000:42:00.0"),
            none(),
            one("0000:40:00.0"),
            one("0000:44:00.0"),
            one("0000:43:00.0"),
            none()
        ]
    );
}

#[test]
fn a_virtual_function_is_where_its_card_is() {
    let fixture = Fixture::new();
    fixture.function("0000:40:00.0", GPU, 0, "vfio-pci");
    fixture.virtual_functions("0000:40:00.0", "0000:40:00.4", 1, GPU, "vfio-pci");
    fixture.function("0000:41:00.0", GPU, 0, "vfio-pci");
    let function = crate::Function {
        address: "0000:40:00.4".to_owned(),
        resource_class: kilonova_ids::ResourceClass::verbatim("PGPU"),
        traits: Vec::new(),
    };
    let links = Links::parse(&["0000:40:00.0,0000:41:00.0".to_owned()]);
    let links = links.expect("the island is valid");
    let discovery = Discovery { functions: vec![function], links, ..Discovery::default() };
    let found = discovery.devices(&fixture.sysfs(), &|_| false).expect("sysfs is readable");
    assert_eq!(found[0].card.as_deref(), Some("0000:40:00.0"));
    assert_eq!(found[0].peers, ["0000:41:00.0"]);
}

#[test]
fn cards_of_islands_that_a_host_lacks_are_named() {
    let fixture = Fixture::new();
    fixture.function("0000:40:00.0", GPU, 0, "vfio-pci");
    let links = Links::parse(&["0000:40:00.0,0000:4F:00.0".to_owned()]);
    let discovery =
        Discovery { links: links.expect("the island is valid"), ..Discovery::default() };
    assert_eq!(
        discovery.absent_links(&fixture.sysfs()),
        ["[devices] nvlink_islands: this host has no PCI function 0000:4f:00.0"]
    );
}

#[test]
fn wrong_islands_are_refused() {
    for (values, why) in [
        (&["0000:40:00.0"][..], "not an island of at least two cards"),
        (&["0000:40:00.0,40:00"], "'40:00' is neither a PCI address"),
        (&["0000:4A:00.0,00000000:4a:00.0"], "0000:4a:00.0 is listed twice"),
        (&["driver", "0000:40:00.0,0000:41:00.0"], "'driver' is neither a PCI address"),
        (&["0000:40:00.0,0000:41:00.0", "0000:41:00.0,0000:42:00.0"], "41:00.0 is listed twice"),
    ] {
        let values: Vec<String> = values.iter().map(|one| (*one).to_owned()).collect();
        let error = Links::parse(&values).expect_err("the islands are wrong");
        assert!(error.contains(why), "{values:?}: {error}");
    }
}
