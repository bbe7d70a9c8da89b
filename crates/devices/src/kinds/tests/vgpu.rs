//! vGPUs without mediated devices, and MIG-backed ones.

use kilonova_node_api::DeviceKind;

use super::{allowed, cut_into, look, reasons, short};
use crate::testing::Fixture;
use crate::{Vgpu, clear_type, set_type};

const CARD: &str = "0000:25:00.0";
const IDS: (&str, &str, &str) = ("10de", "2235", "030200");
const TYPES: [(u32, &str); 2] = [(557, "NVIDIA A40-1Q"), (558, "NVIDIA A40-2Q")];

/// An A40 with three virtual functions and their current type numbers.
fn a40(types: [u32; 3], creatable: &[(u32, &str)]) -> Fixture {
    let fixture = Fixture::new();
    fixture.function(CARD, IDS, 1, "nvidia");
    let all = fixture.virtual_functions(CARD, "0000:25:00.4", 3, IDS, "nvidia");
    for (address, current) in all.iter().zip(types) {
        let path = format!("devices/pci0000:25/{address}");
        fixture.vgpu_files(&path, current, if current == 0 { creatable } else { &[] });
    }
    fixture
}

#[test]
fn idle_functions_and_those_with_the_type_are_offered() {
    let fixture = a40([0, 558, 557], &TYPES);
    let found = look(&fixture, &cut_into(&fixture, &[("nvidia-558", &[], None)]));
    assert_eq!(
        short(&found.devices),
        ["0000:25:00.0 VGPU [0000:25:00.4=nvidia-558 0000:25:00.5=nvidia-558]"]
    );
    let device = &found.devices[0];
    assert_eq!((device.address.as_str(), device.kind), (CARD, DeviceKind::Gpu));
    assert!(device.deployables[0].traits.contains(&"CUSTOM_NVIDIA_558".to_owned()));
    let all = reasons(&found);
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].starts_with("0000:25:00.6: it has vGPU type nvidia-557"), "{all:?}");
}

#[test]
fn the_offer_shrinks_with_the_functions_in_use() {
    let fixture = a40([0, 0, 0], &TYPES);
    let discovery = cut_into(&fixture, &[("nvidia-558", &[], None)]);
    let before = look(&fixture, &discovery);
    let vgpu = Vgpu { address: "0000:25:00.5".into(), vgpu_type: "nvidia-558".into() };
    set_type(&fixture.sysfs(), &vgpu).expect("the type is set");
    assert_eq!(short(&look(&fixture, &discovery).devices), short(&before.devices));
    clear_type(&fixture.sysfs(), &vgpu).expect("the type is cleared");
    assert_eq!(look(&fixture, &discovery), before);
}

#[test]
fn a_full_card_offers_its_vgpus_without_problems() {
    let fixture = a40([558, 558, 0], &[]);
    let found = look(&fixture, &cut_into(&fixture, &[("nvidia-558", &[], None)]));
    assert_eq!(
        short(&found.devices),
        ["0000:25:00.0 VGPU [0000:25:00.4=nvidia-558 0000:25:00.5=nvidia-558]"]
    );
    assert_eq!(found.problems, []);
}

#[test]
fn the_limit_counts_existing_vgpus_first() {
    let fixture = a40([0, 0, 558], &TYPES);
    let found = look(&fixture, &cut_into(&fixture, &[("nvidia-558", &[], Some(2))]));
    assert_eq!(
        short(&found.devices),
        ["0000:25:00.0 VGPU [0000:25:00.4=nvidia-558 0000:25:00.6=nvidia-558]"]
    );
}

#[test]
fn functions_of_one_card_may_have_different_types() {
    let fixture = a40([0, 0, 0], &TYPES);
    let options: [(&str, &[&str], Option<u32>); 2] =
        [("nvidia-557", &["0000:25:00.4"], None), ("nvidia-558", &[CARD], None)];
    let found = look(&fixture, &cut_into(&fixture, &options));
    assert_eq!(
        short(&found.devices),
        [
            "0000:25:00.0 VGPU [0000:25:00.4=nvidia-557]",
            "0000:25:00.0_VGPU VGPU [0000:25:00.5=nvidia-558 0000:25:00.6=nvidia-558]",
        ]
    );
}

#[test]
fn an_unavailable_type_is_reported_with_the_available_ones() {
    let fixture = a40([0, 0, 0], &TYPES);
    let found = look(&fixture, &cut_into(&fixture, &[("nvidia-700", &[], None)]));
    assert_eq!(found.devices, []);
    let all = reasons(&found);
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all[0].ends_with("nvidia-700 but offers only nvidia-557, nvidia-558"), "{all:?}");
}

#[test]
fn mig_backed_types_have_slice_traits() {
    let fixture = a40([0, 0, 0], &[(1021, "NVIDIA A100-1-5C")]);
    let found = look(&fixture, &cut_into(&fixture, &[("nvidia-1021", &[], None)]));
    let part = &found.devices[0].deployables[0];
    assert_eq!(part.slots.len(), 3);
    assert_eq!(part.facts["mig_profile"], "1g.5gb");
    assert_eq!(
        part.traits,
        [
            "OWNER_NOVA",
            "CUSTOM_NVIDIA_1021",
            "CUSTOM_NVIDIA_2235_A100_1_5C",
            "CUSTOM_NVIDIA_MIG_1G_5GB"
        ]
    );
}

#[test]
fn a_card_may_be_offered_whole_or_by_its_vgpus() {
    let fixture = a40([0, 0, 0], &TYPES);
    let mut discovery = cut_into(&fixture, &[("nvidia-558", &[], None)]);
    discovery.specs = allowed(&[r#"{"address": "0000:25:00.0", "resource_class": "PGPU"}"#]).specs;
    let found = look(&fixture, &discovery);
    let all = short(&found.devices);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all.contains(&"0000:25:00.0 PGPU [0000:25:00.0]".to_owned()), "{all:?}");
    let vgpus = all.iter().find(|one| one.starts_with("0000:25:00.0_VGPU VGPU"));
    assert!(vgpus.is_some_and(|one| one.contains("0000:25:00.6=nvidia-558")), "{all:?}");
    assert_eq!(found.problems, []);
}

#[test]
fn a_card_may_be_offered_whole_or_by_typed_virtual_functions() {
    let fixture = Fixture::new();
    fixture.function(CARD, IDS, 1, "nvidia");
    let all = fixture.virtual_functions(CARD, "0000:25:00.4", 2, IDS, "nvidia");
    for address in &all {
        let path = format!("devices/pci0000:25/{address}");
        fixture.types(&path, &[("nvidia-558", "NVIDIA A40-2Q", 1)]);
        fixture.link(&format!("class/mdev_bus/{address}"), &path);
    }
    let mut discovery = cut_into(&fixture, &[("nvidia-558", &[], None)]);
    let whole =
        r#"{"address": {"bus": "25", "slot": "00", "function": "0"}, "resource_class": "PGPU"}"#;
    discovery.specs = allowed(&[whole]).specs;
    let found = look(&fixture, &discovery);
    assert_eq!(
        short(&found.devices),
        [
            "0000:25:00.0 PGPU [0000:25:00.0]",
            "pci_0000_25_00_4 VGPU [1xnvidia-558]",
            "pci_0000_25_00_5 VGPU [1xnvidia-558]"
        ]
    );
    let cards: Vec<_> = found.devices.iter().map(|device| device.card.as_deref()).collect();
    assert_eq!(cards, [None, Some(CARD), Some(CARD)], "the ledger distinguishes them by card");
    assert_eq!(reasons(&found), Vec::<String>::new());
    fixture.write("devices/pci0000:25/0000:25:00.0/max_link_width", "16\n");
    fixture.write("devices/pci0000:25/0000:25:00.0/current_link_width", "0\n");
    let found = look(&fixture, &discovery);
    let failed = found.devices.iter().filter(|device| device.health.as_str() == "failed").count();
    assert_eq!(failed, 3, "a virtual function fails with its card");
}
