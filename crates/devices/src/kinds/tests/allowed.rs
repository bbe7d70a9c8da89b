//! `[pci] device_spec`.

use kilonova_node_api::DeviceKind;

use super::{allowed, look, reasons, short};
use crate::testing::Fixture;

const CARD: (&str, &str, &str) = ("8086", "1572", "020000");
const VF: (&str, &str, &str) = ("8086", "154c", "020000");

fn with_two_virtual_functions() -> Fixture {
    let fixture = Fixture::new();
    fixture.function("0000:81:00.0", CARD, 1, "i40e");
    fixture.virtual_functions("0000:81:00.0", "0000:81:02.0", 2, VF, "vfio-pci");
    fixture
}

#[test]
fn a_whole_function_is_one_provider_by_its_address() {
    let fixture = Fixture::new();
    fixture.function("0000:03:00.0", ("144d", "a808", "010802"), 0, "nvme");
    fixture.function("0000:00:1c.0", ("144d", "a808", "060400"), 0, "pcieport");
    let found = look(&fixture, &allowed(&[r#"{"vendor_id": "144d", "product_id": "a808"}"#]));
    assert_eq!(short(&found.devices), ["0000:03:00.0 CUSTOM_PCI_144D_A808 [0000:03:00.0]"]);
    let device = &found.devices[0];
    assert_eq!((device.kind, device.numa_node), (DeviceKind::Ssd, 0));
    assert_eq!(
        device.deployables[0].traits,
        ["COMPUTE_MANAGED_PCI_DEVICE", "CUSTOM_PCI_144D_A808", "CUSTOM_PCI_TYPE_PCI", "OWNER_NOVA"]
    );
    assert_eq!(found.problems, []);
}

#[test]
fn virtual_functions_are_counted_on_their_card() {
    let fixture = with_two_virtual_functions();
    let spec = r#"{"vendor_id": "8086", "product_id": "154c", "physical_network": "net1",
        "resource_class": "x710 vf", "traits": "gold"}"#;
    let found = look(&fixture, &allowed(&[spec]));
    assert_eq!(short(&found.devices), ["0000:81:00.0 CUSTOM_X710_VF [0000:81:02.0 0000:81:02.1]"]);
    let part = &found.devices[0].deployables[0];
    assert_eq!(part.facts["physical_network"], "net1");
    assert!(part.traits.contains(&"CUSTOM_GOLD".to_owned()), "{part:?}");
    assert_eq!(found.devices[0].product_id, "1572", "the device is the card");
}

#[test]
fn a_card_and_its_virtual_functions_may_be_offered_side_by_side() {
    let fixture = with_two_virtual_functions();
    let found = look(&fixture, &allowed(&[r#"{"address": "0000:81:00.0"}"#]));
    assert_eq!(found.devices.len(), 1);
    assert_eq!(
        short(&found.devices),
        [
            "0000:81:00.0 CUSTOM_PCI_8086_1572 [0000:81:00.0]",
            "0000:81:00.0_CUSTOM_PCI_8086_154C CUSTOM_PCI_8086_154C [0000:81:02.0 0000:81:02.1]",
        ]
    );
    assert_eq!(reasons(&found), Vec::<String>::new());
}

#[test]
fn virtual_functions_of_one_card_may_differ_in_class() {
    let fixture = with_two_virtual_functions();
    let found = look(
        &fixture,
        &allowed(&[
            r#"{"address": "0000:81:02.0", "resource_class": "A", "managed": "no"}"#,
            r#"{"address": "0000:81:02.1", "resource_class": "B"}"#,
        ]),
    );
    assert_eq!(
        short(&found.devices),
        ["0000:81:00.0 CUSTOM_A [0000:81:02.0=]", "0000:81:00.0_CUSTOM_B CUSTOM_B [0000:81:02.1]"]
    );
    let managed = |part: &kilonova_node_api::Deployable| {
        part.traits.contains(&"COMPUTE_MANAGED_PCI_DEVICE".to_owned())
    };
    assert!(
        found.devices[0].deployables.iter().all(managed),
        "the trait is independent of `managed`: {found:?}"
    );
}

/// A card and its functions may have the same ids, so only the type distinguishes them.
#[test]
fn traits_express_upstreams_device_type() {
    let ids = ("1b36", "0010", "010802");
    let fixture = Fixture::new();
    for (bus, most) in [("81", Some("8")), ("82", Some("0")), ("83", None)] {
        let path = fixture.function(&format!("0000:{bus}:00.0"), ids, 0, "nvme");
        if let Some(most) = most {
            fixture.write(&format!("{path}/sriov_totalvfs"), &format!("{most}\n"));
        }
    }
    fixture.function("0000:84:00.0", ids, 0, "nvme");
    fixture.virtual_functions("0000:84:00.0", "0000:84:00.1", 2, ids, "vfio-pci");
    let spec = r#"{"vendor_id": "1b36", "product_id": "0010", "resource_class": "DISK"}"#;
    let found = look(&fixture, &allowed(&[spec]));
    let parts = found.devices.iter().flat_map(|device| &device.deployables);
    let types: Vec<_> = parts
        .map(|part| {
            assert!(part.traits.contains(&"CUSTOM_PCI_1B36_0010".to_owned()), "{part:?}");
            let of_type = part
                .traits
                .iter()
                .find(|name| name.contains("_TYPE_"))
                .expect("the deployable has a type trait");
            (part.name.as_str(), of_type.as_str())
        })
        .collect();
    assert_eq!(
        types,
        [
            ("0000:81:00.0", "CUSTOM_PCI_TYPE_PF"),
            ("0000:82:00.0", "CUSTOM_PCI_TYPE_PCI"),
            ("0000:83:00.0", "CUSTOM_PCI_TYPE_PCI"),
            ("0000:84:00.0", "CUSTOM_PCI_TYPE_PF"),
            ("0000:84:00.0_CUSTOM_DISK", "CUSTOM_PCI_TYPE_VF"),
        ]
    );
}

#[test]
fn functions_that_libvirt_must_not_bind_need_their_driver() {
    let fixture = Fixture::new();
    let ids = ("1bb1", "0100", "010802");
    for (bus, driver) in [("81", "vfio-pci"), ("82", "nvme"), ("83", "")] {
        let address = format!("0000:{bus}:00.0");
        let path = fixture.function(&address, ids, 0, driver);
        if driver.is_empty() {
            std::fs::remove_file(fixture.root().join(path).join("driver"))
                .expect("the driver is unbound");
        }
    }
    fixture.function("0000:84:00.0", ids, 0, "nvme");
    let parts = fixture.virtual_functions("0000:84:00.0", "0000:84:00.1", 2, ids, "vfio-pci");
    let path = format!("devices/pci0000:84/{}/driver", parts[1]);
    fixture.link(&path, "bus/pci/drivers/nvme");
    let spec = |address: &str| {
        format!(r#"{{"address": "{address}", "managed": "no", "resource_class": "X"}}"#)
    };
    let specs = ["*:81:00.0", "*:82:00.0", "*:83:00.0", "*:84:00.1", "*:84:00.2"].map(spec);
    let found = look(&fixture, &allowed(&specs.each_ref().map(String::as_str)));
    let states: Vec<_> = found.devices.iter().map(|device| device.health.as_str()).collect();
    assert_eq!(states, ["healthy", "failed", "failed", "degraded"]);
    assert_eq!(
        short(&found.devices),
        [
            "0000:81:00.0 CUSTOM_X [0000:81:00.0=]",
            "0000:82:00.0 CUSTOM_X [0000:82:00.0=]",
            "0000:83:00.0 CUSTOM_X [0000:83:00.0=]",
            "0000:84:00.0 CUSTOM_X [0000:84:00.1=]",
        ]
    );
    let all = reasons(&found);
    for part in ["it has nvme", "it has none", "1 of 2 functions are left out; 0000:84:00.2: "] {
        assert!(all.iter().any(|one| one.contains(part)), "{part}: {all:?}");
    }
}

#[test]
fn the_first_entry_that_names_a_function_counts() {
    let fixture = with_two_virtual_functions();
    let found = look(
        &fixture,
        &allowed(&[
            r#"{"address": "*:81:02.1", "resource_class": "SPECIAL"}"#,
            r#"{"product_id": "154c", "resource_class": "PLAIN"}"#,
        ]),
    );
    let all = short(&found.devices);
    assert!(all.iter().any(|one| one.contains("CUSTOM_SPECIAL [0000:81:02.1]")), "{all:?}");
    assert!(all.iter().any(|one| one.contains("CUSTOM_PLAIN [0000:81:02.0]")), "{all:?}");
}

#[test]
fn one_time_use_is_reported_and_refused_for_virtual_functions() {
    let fixture = with_two_virtual_functions();
    let found = look(
        &fixture,
        &allowed(&[
            r#"{"product_id": "1572", "one_time_use": "yes", "live_migratable": "yes"}"#,
            r#"{"address": "0000:81:02.0", "one_time_use": false}"#,
        ]),
    );
    assert_eq!(short(&found.devices), ["0000:81:00.0 CUSTOM_PCI_8086_1572 [0000:81:00.0]"]);
    let traits = &found.devices[0].deployables[0].traits;
    for name in ["HW_PCI_ONE_TIME_USE", "HW_PCI_LIVE_MIGRATABLE"] {
        assert!(traits.iter().any(|one| one == name), "{traits:?}");
    }
    let all = reasons(&found);
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].starts_with("0000:81:02.0: ") && all[0].contains("one_time_use"), "{all:?}");
}

#[test]
fn an_entry_without_a_match_is_reported() {
    let found = look(&with_two_virtual_functions(), &allowed(&[r#"{"vendor_id": "10de"}"#]));
    assert_eq!(found.devices, []);
    assert_eq!(
        reasons(&found),
        ["{\"vendor_id\":\"10de\"}: [pci] device_spec: it matches no function of this host"]
    );
}
