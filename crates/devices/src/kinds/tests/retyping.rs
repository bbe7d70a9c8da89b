//! Cards whose guests decide the type.

use super::{look, reasons, short};
use crate::testing::Fixture;
use crate::{
    Discovery, Found, MdevConfig, MdevGroup, MdevOptions, ScanContext, TypeNames, Vgpu, set_type,
};

const SMALL: &str = "nvidia-35";
const LARGE: &str = "nvidia-36";
const FIRST: &str = "0000:84:00.0";
const SECOND: &str = "0000:85:00.0";

/// Types with their addresses and their minimum.
fn retyped(fixture: &Fixture, types: &[(&str, &[&str], Option<u32>)]) -> Discovery {
    let mut options = MdevOptions { retyping: true, ..MdevOptions::default() };
    for (name, addresses, min_instances) in types {
        options.enabled.push((*name).to_owned());
        let group = MdevGroup {
            device_addresses: addresses.iter().map(|one| (*one).to_owned()).collect(),
            min_instances: *min_instances,
            ..MdevGroup::default()
        };
        options.groups.insert((*name).to_owned(), group);
    }
    let mdev = MdevConfig::new(&options, &fixture.sysfs()).expect("the options are valid");
    Discovery { mdev, ..Discovery::default() }
}

/// GPUs of eight small vGPUs or two large ones, as NVIDIA's driver describes them.
fn gpus(addresses: &[&str], available: (u32, u32)) -> Fixture {
    let fixture = Fixture::new();
    for address in addresses {
        fixture.gpu(
            address,
            &[(SMALL, "GRID M10-0B", available.0), (LARGE, "GRID M10-4Q", available.1)],
        );
        for (id, most) in [(SMALL, 8), (LARGE, 2)] {
            let path = format!("bus/pci/devices/{address}/mdev_supported_types/{id}/description");
            fixture.write(&path, &format!("num_heads=2, frl_config=60, max_instance={most}\n"));
        }
    }
    fixture
}

const ANY: [(&str, &[&str], Option<u32>); 2] = [(SMALL, &[], None), (LARGE, &[], None)];

#[test]
fn an_empty_card_offers_all_of_its_types() {
    let fixture = gpus(&[FIRST, SECOND], (8, 2));
    let listed = [(SMALL, &[] as &[&str], None), (LARGE, &[FIRST], None)];
    for (types, of_first) in [(ANY, true), (listed, false)] {
        let found = look(&fixture, &retyped(&fixture, &types));
        let mut expected = vec![
            "pci_0000_84_00_0 VGPU [8xnvidia-35]",
            "pci_0000_84_00_0_nvidia-36 VGPU [2xnvidia-36]",
            "pci_0000_85_00_0 VGPU [8xnvidia-35]",
            "pci_0000_85_00_0_nvidia-36 VGPU [2xnvidia-36]",
        ];
        let mut one_type = vec![true, true];
        if !of_first {
            // A card that only one type lists has only that type.
            expected = vec!["pci_0000_84_00_0 VGPU [2xnvidia-36]", expected[2]];
            one_type = vec![false, false];
        }
        assert_eq!(short(&found.devices), expected);
        let flags: Vec<bool> = found.devices.iter().map(|device| device.one_type).collect();
        assert_eq!(flags, one_type);
        assert_eq!(found.problems, []);
    }
}

#[test]
fn guests_of_one_type_do_not_change_what_is_offered() {
    let fixture = gpus(&[FIRST], (8, 2));
    let discovery = retyped(&fixture, &ANY);
    let before = look(&fixture, &discovery);
    let used = gpus(&[FIRST], (7, 0));
    let ours = used.mdev("devices/pci0000:84/0000:84:00.0", SMALL);
    let found = discovery.scan(&used.sysfs(), &|uuid| uuid == ours).expect("the bus is readable");
    assert_eq!(found, before);
    // A foreign device excludes a type from the card, and the controller does not know the device.
    let found = look(&used, &discovery);
    assert_eq!(short(&found.devices), ["pci_0000_84_00_0 VGPU [7xnvidia-35]"]);
}

#[test]
fn a_card_whose_driver_does_not_say_what_fits_keeps_its_first_type() {
    let fixture = Fixture::new();
    fixture.gpu(FIRST, &[(SMALL, "GRID M10-0B", 8), (LARGE, "GRID M10-4Q", 2)]);
    let found = look(&fixture, &retyped(&fixture, &ANY));
    assert_eq!(short(&found.devices), ["pci_0000_84_00_0 VGPU [8xnvidia-35]"]);
    assert!(!found.devices[0].one_type);
    let all = reasons(&found);
    assert!(
        all[0].contains("it keeps its first type: its driver does not say how many"),
        "{all:?}"
    );
}

#[test]
fn the_first_cards_are_kept_for_a_minimum() {
    let fixture = gpus(&[FIRST, SECOND, "0000:86:00.0"], (8, 2));
    let types = |least| [(SMALL, &[] as &[&str], None), (LARGE, &[] as &[&str], Some(least))];
    let kept = |least| {
        let found = look(&fixture, &retyped(&fixture, &types(least)));
        let small = short(&found.devices).iter().filter(|one| one.contains(SMALL)).count();
        (small, reasons(&found))
    };
    assert_eq!(kept(0), (3, Vec::new()));
    assert_eq!(kept(1), (2, Vec::new()));
    assert_eq!(kept(2), (2, Vec::new()));
    assert_eq!(kept(3), (1, Vec::new()));
    let too_many = "[mdev_nvidia-36]: min_instances = 9, but its cards hold only 6";
    assert_eq!(kept(9), (0, vec![too_many.to_owned()]));
    let found = look(&fixture, &retyped(&fixture, &types(1)));
    assert_eq!(short(&found.devices)[0], "pci_0000_84_00_0_nvidia-36 VGPU [2xnvidia-36]");
}

const CARD: &str = "0000:25:00.0";
const IDS: (&str, &str, &str) = ("10de", "2235", "030200");
const CREATABLE: [(u32, &str); 2] = [(557, "NVIDIA A40-1Q"), (558, "NVIDIA A40-2Q")];

/// An A40 with two virtual functions and their current type numbers.
fn a40(types: [u32; 2], creatable: &[(u32, &str)]) -> Fixture {
    let fixture = Fixture::new();
    add_a40(&fixture, CARD, types, creatable);
    fixture
}

fn add_a40(fixture: &Fixture, card: &str, types: [u32; 2], creatable: &[(u32, &str)]) {
    fixture.function(card, IDS, 1, "nvidia");
    let bus = &card[..7];
    let all = fixture.virtual_functions(card, &format!("{bus}:00.4"), 2, IDS, "nvidia");
    for (address, current) in all.iter().zip(types) {
        let path = format!("devices/pci{bus}/{address}");
        fixture.vgpu_files(&path, current, if current == 0 { creatable } else { &[] });
    }
}

#[test]
fn functions_of_a_listed_card_offer_all_of_its_types_whichever_is_in_use() {
    let types = [("nvidia-557", &[CARD] as &[&str], None), ("nvidia-558", &[CARD], None)];
    for (current, creatable) in
        [([0, 0], &CREATABLE[..]), ([558, 0], &CREATABLE[1..]), ([558, 558], &[])]
    {
        let fixture = a40(current, creatable);
        let found = look(&fixture, &retyped(&fixture, &types));
        assert_eq!(
            short(&found.devices),
            [
                "0000:25:00.0 VGPU [0000:25:00.4=nvidia-557 0000:25:00.5=nvidia-557]",
                "0000:25:00.0_nvidia-558 VGPU [0000:25:00.4=nvidia-558 0000:25:00.5=nvidia-558]",
            ],
            "{current:?}"
        );
        assert!(found.devices[0].one_type);
        assert_eq!(found.problems, [], "{current:?}");
    }
    // A type that the driver does not create on an empty card is not offered.
    let fixture = a40([0, 0], &CREATABLE[..1]);
    let found = look(&fixture, &retyped(&fixture, &types));
    assert_eq!(found.devices[0].deployables.len(), 1);
    // A type that is not configured excludes the others.
    let fixture = a40([559, 0], &[]);
    assert_eq!(look(&fixture, &retyped(&fixture, &types)).devices, []);
}

#[test]
fn a_minimum_keeps_a_card_of_functions() {
    let fixture = a40([0, 0], &CREATABLE);
    let types = [("nvidia-557", &[CARD] as &[&str], None), ("nvidia-558", &[CARD], Some(1))];
    let discovery = retyped(&fixture, &types);
    let expected =
        ["0000:25:00.0_nvidia-558 VGPU [0000:25:00.4=nvidia-558 0000:25:00.5=nvidia-558]"];
    assert_eq!(short(&look(&fixture, &discovery).devices), expected);
    let vgpu = Vgpu { address: "0000:25:00.5".into(), vgpu_type: "nvidia-557".into() };
    set_type(&fixture.sysfs(), &vgpu).expect("the type is set");
    let found = look(&fixture, &discovery);
    assert_eq!(short(&found.devices), expected, "the guest keeps its function until it is deleted");
}

/// A card that a large guest fills offers less, but counts the same towards the minimum.
#[test]
fn guests_do_not_change_which_cards_of_functions_are_kept() {
    const OTHER: &str = "0000:26:00.0";
    let cards = [CARD, OTHER];
    for (least, kept) in [(1, 1), (2, 1), (3, 2), (4, 2)] {
        let types = [("nvidia-557", &cards as &[&str], None), ("nvidia-558", &cards, Some(least))];
        for (current, creatable) in [
            ([0, 0], &CREATABLE[..]),
            ([558, 0], &[]),
            ([558, 558], &[]),
            ([557, 0], &CREATABLE[..1]),
            ([557, 557], &[]),
            ([557, 558], &[]),
        ] {
            let fixture = a40(current, creatable);
            add_a40(&fixture, OTHER, [0, 0], &CREATABLE);
            let found = look(&fixture, &retyped(&fixture, &types));
            let at = format!("{least} {current:?}: {:?}", found.problems);
            let all = short(&found.devices);
            let is_small = |card: &str| {
                all.iter().any(|one| one.starts_with(card) && one.contains("=nvidia-557"))
            };
            assert_eq!((is_small(CARD), is_small(OTHER)), (false, kept == 1), "{at}");
            assert_eq!(found.problems, [], "{at}");
        }
    }
}

/// The traits of a type's name do not depend on what guests exclude, even after a restart of the agent.
#[test]
fn an_excluded_type_keeps_the_traits_of_its_name() {
    let types = [("nvidia-557", &[CARD] as &[&str], None), ("nvidia-558", &[CARD], None)];
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let file = folder.path().join("state/vgpu_types");
    let scan = |fixture: &Fixture, names: &TypeNames| {
        let context = ScanContext { names: Some(names), ..ScanContext::default() };
        let discovery = retyped(fixture, &types);
        discovery.scan_with(&fixture.sysfs(), &|_| false, context).expect("the bus is readable")
    };
    let traits = |found: &Found| -> Vec<Vec<String>> {
        found.devices[0].deployables.iter().map(|part| part.traits.clone()).collect()
    };
    let names = TypeNames::open(file.clone());
    let empty = traits(&scan(&a40([0, 0], &CREATABLE), &names));
    assert!(empty[0].contains(&"CUSTOM_NVIDIA_2235_A40_1Q".to_owned()), "{empty:?}");
    for (current, creatable) in [([558, 0], &CREATABLE[1..]), ([558, 558], &[]), ([557, 557], &[])]
    {
        let in_use = a40(current, creatable);
        assert_eq!(traits(&scan(&in_use, &names)), empty, "{current:?}");
        assert_eq!(traits(&scan(&in_use, &TypeNames::open(file.clone()))), empty, "{current:?}");
        assert_ne!(traits(&scan(&in_use, &TypeNames::default())), empty, "{current:?}");
    }
    // The names of a removed card are forgotten, because another card may get its address.
    let other = Fixture::new();
    other.function("0000:99:00.0", IDS, 0, "nvidia");
    scan(&other, &names);
    assert_ne!(traits(&scan(&a40([558, 558], &[]), &TypeNames::open(file.clone()))), empty);
    std::fs::write(&file, "{").expect("the file is written");
    assert_eq!(traits(&scan(&a40([0, 0], &CREATABLE), &TypeNames::open(file))), empty);
}
