//! Broken, truncated and disappearing files: a bad device never hides another.

use kilonova_node_api::Health;

use super::{allowed, cut_into, driven, look, reasons, short};
use crate::Driver;
use crate::testing::Fixture;

const T4: (&str, &str, &str) = ("10de", "1eb8", "030200");

fn failure(found: &crate::Found, address: &str) -> String {
    let device = found.devices.iter().find(|device| device.address == address);
    match device.map(|device| &device.health) {
        Some(Health::Failed { reason, .. }) => reason.clone(),
        other => panic!("{address}: {other:?}"),
    }
}

#[test]
fn an_mdev_parent_with_an_empty_or_unreadable_count_fails_alone() {
    let fixture = Fixture::new();
    for address in ["0000:84:00.0", "0000:85:00.0", "0000:86:00.0"] {
        fixture.gpu(address, &[("nvidia-35", "GRID M10-0B", 16)]);
    }
    let count = |bus: &str| {
        let types = "mdev_supported_types/nvidia-35";
        format!("devices/pci0000:{bus}/0000:{bus}:00.0/{types}/available_instances")
    };
    fixture.write(&count("84"), "");
    fixture.spoil(&count("85"));
    let discovery = cut_into(&fixture, &[("nvidia-35", &[], None)]);
    let found = look(&fixture, &discovery);
    assert_eq!(short(&found.devices), ["pci_0000_86_00_0 VGPU [16xnvidia-35]"]);
    assert!(
        failure(&found, "0000:84:00.0").contains("available_instances has unexpected content \"\"")
    );
    assert!(failure(&found, "0000:85:00.0").starts_with("cannot read "));
    assert_eq!(found.problems.len(), 2, "{:?}", found.problems);
    fixture.write(&count("84"), "16\n");
    let later = look(&fixture, &discovery);
    assert_eq!(later.devices.len(), 3);
    assert_eq!(later.devices[0].health, Health::Healthy);
}

#[test]
fn a_listed_parent_that_lacks_its_type_fails_with_what_it_offers() {
    let fixture = Fixture::new();
    fixture.gpu("0000:84:00.0", &[("nvidia-36", "GRID M10-0Q", 16)]);
    fixture.gpu("0000:85:00.0", &[("nvidia-35", "GRID M10-0B", 16)]);
    let listed: &[&str] = &["0000:84:00.0", "0000:85:00.0"];
    let found = look(&fixture, &cut_into(&fixture, &[("nvidia-35", listed, None)]));
    assert_eq!(short(&found.devices), ["pci_0000_85_00_0 VGPU [16xnvidia-35]"]);
    assert_eq!(failure(&found, "0000:84:00.0"), "it does not offer nvidia-35, only nvidia-36");
}

#[test]
fn unreadable_functions_fail_and_vanished_ones_are_absent() {
    let fixture = Fixture::new();
    for bus in ["3a", "3b", "3c", "3d"] {
        fixture.function(&format!("0000:{bus}:00.0"), T4, 0, "nvidia");
    }
    fixture.write("devices/pci0000:3a/0000:3a:00.0/vendor", "0x10\n");
    fixture.spoil("devices/pci0000:3b/0000:3b:00.0/device");
    let gone = fixture.root().join("devices/pci0000:3c/0000:3c:00.0");
    std::fs::remove_dir_all(gone).expect("the directory is removed");
    let found = look(&fixture, &driven(Driver::NvidiaGpu));
    assert_eq!(short(&found.devices), ["0000:3d:00.0 PGPU [0000:3d:00.0]"]);
    assert!(failure(&found, "0000:3a:00.0").contains("\"0x10\""));
    assert!(failure(&found, "0000:3b:00.0").starts_with("cannot read "));
    assert_eq!(found.devices.len(), 3, "the vanished function is absent");
}

#[test]
fn a_vgpu_function_with_a_broken_file_is_left_out_of_its_card() {
    let fixture = Fixture::new();
    fixture.function("0000:25:00.0", T4, 0, "nvidia");
    let all = fixture.virtual_functions("0000:25:00.0", "0000:25:00.4", 3, T4, "nvidia");
    for address in &all {
        let path = format!("devices/pci0000:25/{address}");
        fixture.vgpu_files(&path, 0, &[(558, "NVIDIA A40-2Q")]);
    }
    fixture.write(&format!("devices/pci0000:25/{}/nvidia/current_vgpu_type", all[0]), "??\n");
    fixture.spoil(&format!("devices/pci0000:25/{}/nvidia/creatable_vgpu_types", all[1]));
    let found = look(&fixture, &cut_into(&fixture, &[("nvidia-558", &[], None)]));
    assert_eq!(short(&found.devices), ["0000:25:00.0 VGPU [0000:25:00.6=nvidia-558]"]);
    assert_eq!(found.problems.len(), 2, "{:?}", found.problems);
}

#[test]
fn an_address_named_twice_is_offered_once_and_reported() {
    let fixture = Fixture::new();
    fixture.gpu("0000:84:00.0", &[("nvidia-35", "GRID M10-0B", 16)]);
    let mut discovery = cut_into(&fixture, &[("nvidia-35", &[], None)]);
    discovery.specs = allowed(&[r#"{"address": "0000:84:00.0"}"#]).specs;
    let found = look(&fixture, &discovery);
    assert_eq!(short(&found.devices), ["pci_0000_84_00_0 VGPU [16xnvidia-35]"]);
    let all = reasons(&found);
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].contains("ignoring [pci] device_spec, which names it too"), "{all:?}");
}

#[test]
fn a_card_without_link_or_with_fatal_errors_is_not_offered() {
    let fixture = Fixture::new();
    for bus in ["3a", "3b", "3c"] {
        let path = fixture.function(&format!("0000:{bus}:00.0"), T4, 0, "nvidia");
        fixture.write(&format!("{path}/max_link_width"), "16\n");
        let width = if bus == "3a" { "0\n" } else { "16\n" };
        fixture.write(&format!("{path}/current_link_width"), width);
        let count = if bus == "3b" { 2 } else { 0 };
        let text = format!("Undefined 0\nDLP {count}\nTOTAL_ERR_FATAL {count}\n");
        fixture.write(&format!("{path}/aer_dev_fatal"), &text);
    }
    let found = look(&fixture, &driven(Driver::NvidiaGpu));
    assert_eq!(failure(&found, "0000:3a:00.0"), "its PCIe link is down");
    assert!(failure(&found, "0000:3b:00.0").contains("2 fatal PCIe errors"));
    let names: Vec<String> =
        found.devices.iter().flat_map(|d| d.deployables.iter().map(|p| p.name.clone())).collect();
    assert_eq!(names, ["0000:3a:00.0", "0000:3b:00.0", "0000:3c:00.0"], "providers stay");
    assert_eq!(found.devices[2].health, Health::Healthy);
}

#[test]
fn a_host_without_a_bus_has_no_devices_and_no_problems() {
    let discovery = driven(Driver::NvidiaGpu);
    assert_eq!(look(&Fixture::new(), &discovery), crate::Found::default());
}
