//! Cards in MIG mode whose GPU instances the agent creates.

use kilonova_node_api::{GpuInstance, MigPlacement};

use super::{reasons, short};
use crate::testing::Fixture;
use crate::{
    DeviceSpec, Discovery, Driver, Found, InstanceProfile, InstanceType, KernelObject, MdevConfig,
    MdevGroup, MdevOptions, MigCard, MigScan, ScanContext, Vgpu, survey,
};

const CARD: &str = "0000:41:00.0";
const IDS: (&str, &str, &str) = ("10de", "20b0", "030200");

/// An A100 with three virtual functions and their current type numbers.
fn a100(types: [u32; 3]) -> Fixture {
    let fixture = Fixture::new();
    fixture.function(CARD, IDS, 1, "nvidia");
    let all = fixture.virtual_functions(CARD, "0000:41:00.4", 3, IDS, "nvidia");
    for (address, current) in all.iter().zip(types) {
        fixture.vgpu_files(&format!("devices/pci0000:41/{address}"), current, &[]);
    }
    fixture
}

/// Profile, vGPU type and its number, the size of an instance, its starts, and the maximum number of instances.
type Row = (&'static str, &'static str, u32, u8, &'static [u8], u8);

fn card(instances: Vec<GpuInstance>) -> MigCard {
    let rows: [Row; 3] = [
        ("1g.5gb", "NVIDIA A100-1-5C", 474, 1, &[0, 1, 2, 3, 4, 5, 6], 7),
        ("3g.20gb", "NVIDIA A100-3-20C", 478, 4, &[0, 4], 2),
        ("7g.40gb", "NVIDIA A100-7-40C", 480, 8, &[0], 1),
    ];
    let place = |size: u8| move |&start: &u8| MigPlacement { start, size };
    let profile = |(name, _, _, size, starts, most): &Row| {
        let placements = starts.iter().map(place(*size)).collect();
        InstanceProfile { name: (*name).into(), most: *most, placements }
    };
    let vgpu_type = |(profile, name, number, ..): &Row| InstanceType {
        id: format!("nvidia-{number}"),
        name: (*name).into(),
        profile: (*profile).into(),
    };
    MigCard {
        address: CARD.into(),
        slices: 8,
        profiles: rows.iter().map(profile).collect(),
        types: rows.iter().map(vgpu_type).collect(),
        instances,
        unreadable: None,
    }
}

fn instance(start: u8) -> GpuInstance {
    let place = MigPlacement { start, size: 4 };
    GpuInstance { card: CARD.into(), profile: "3g.20gb".into(), place }
}

fn scan(fixture: &Fixture, card: MigCard, enabled: &[&str], ours: &[KernelObject]) -> Found {
    scan_with(Discovery::default(), fixture, card, enabled, ours)
}

/// A scan with further options.
fn scan_with(
    others: Discovery,
    fixture: &Fixture,
    card: MigCard,
    enabled: &[&str],
    ours: &[KernelObject],
) -> Found {
    let discovery = Discovery { mdev: options(fixture, enabled), ..others };
    let is_ours = |object: &KernelObject| ours.contains(object);
    let mig = Some(MigScan { cards: &[card], is_ours: &is_ours });
    let context = ScanContext { mig, ..ScanContext::default() };
    discovery.scan_with(&fixture.sysfs(), &|_| false, context).expect("the bus is readable")
}

fn options(fixture: &Fixture, enabled: &[&str]) -> MdevConfig {
    options_of(fixture, enabled.iter().map(|name| (*name, MdevGroup::default())))
}

fn options_of<'a>(
    fixture: &Fixture,
    groups: impl Iterator<Item = (&'a str, MdevGroup)> + Clone,
) -> MdevConfig {
    let options = MdevOptions {
        enabled: groups.clone().map(|(name, _)| name.to_owned()).collect(),
        groups: groups.map(|(name, group)| (name.to_owned(), group)).collect(),
        retyping: true,
        mig_instances: true,
    };
    MdevConfig::new(&options, &fixture.sysfs()).expect("the options are valid")
}

const BOTH: [&str; 2] = ["nvidia-474", "nvidia-478"];

#[test]
fn a_card_offers_its_enabled_types_on_all_functions() {
    let found = scan(&a100([0; 3]), card(Vec::new()), &BOTH, &[]);
    let functions = |number: u32| {
        let all = (4..7).map(|n| format!("0000:41:00.{n}=nvidia-{number}"));
        all.collect::<Vec<_>>().join(" ")
    };
    let expected = [474, 478]
        .map(|number| format!("0000:41:00.0_nvidia-{number} VGPU [{}]", functions(number)));
    assert_eq!(short(&found.devices), expected);
    let device = &found.devices[0];
    let mig = device.mig.as_ref().expect("it is in MIG mode");
    let profiles: Vec<&str> = mig.profiles.iter().map(|one| one.name.as_str()).collect();
    assert_eq!((mig.slices, &*profiles, &*mig.foreign), (8, &["1g.5gb", "3g.20gb"][..], &[][..]));
    let traits = &device.deployables[1].traits;
    assert!(traits.contains(&"CUSTOM_NVIDIA_MIG_3G_20GB".to_owned()), "{traits:?}");
    assert_eq!(found.problems, []);
}

#[test]
fn instances_and_types_of_guests_change_nothing_and_foreign_ones_count() {
    let empty = scan(&a100([0; 3]), card(Vec::new()), &BOTH, &[]);
    let vgpu = Vgpu { address: "0000:41:00.5".into(), vgpu_type: "nvidia-478".into() };
    let ours = [KernelObject::Vgpu(vgpu), KernelObject::Instance(instance(4))];
    let in_use = a100([0, 478, 0]);
    assert_eq!(scan(&in_use, card(vec![instance(4)]), &BOTH, &ours), empty);
    let found = scan(&in_use, card(vec![instance(0), instance(4)]), &BOTH, &ours[1..]);
    let device = &found.devices[0];
    assert_eq!(device.mig.as_ref().expect("MIG mode").foreign, [instance(0).place]);
    assert_eq!(device.deployables[0].slots.len(), 2, "a function has a foreign type");
}

/// The controller refuses a card in MIG mode with parts of other kinds, and with it the host's whole report.
#[test]
fn no_other_option_offers_parts_of_the_card() {
    // The second function has a type that no guest of ours has, so it is not offered at all.
    let fixture = a100([0, 474, 0]);
    let alone = scan(&fixture, card(Vec::new()), &BOTH, &[]);
    assert_eq!(alone.devices[0].deployables[0].slots.len(), 2);
    for spec in [
        r#"{"vendor_id": "10de"}"#,
        r#"{"address": "0000:41:00.0"}"#,
        r#"{"address": "0000:41:00.5"}"#,
    ] {
        let specs = DeviceSpec::parse(spec).expect(spec);
        let others = Discovery { specs, drivers: vec![Driver::NvidiaGpu], ..Discovery::default() };
        let found = scan_with(others, &fixture, card(Vec::new()), &BOTH, &[]);
        assert_eq!(found.devices, alone.devices, "{spec}");
    }
}

/// The types that each of two cards offers, and the notes.
fn types_of(groups: &[(&str, MdevGroup)]) -> ([Vec<String>; 2], Vec<String>) {
    types_beside(&a100([0; 3]), groups)
}

/// The same, with `fixture` as the first card.
fn types_beside(
    fixture: &Fixture,
    groups: &[(&str, MdevGroup)],
) -> ([Vec<String>; 2], Vec<String>) {
    const OTHER: &str = "0000:c1:00.0";
    fixture.function(OTHER, IDS, 1, "nvidia");
    for address in fixture.virtual_functions(OTHER, "0000:c1:00.4", 3, IDS, "nvidia") {
        fixture.vgpu_files(&format!("devices/pci0000:c1/{address}"), 0, &[]);
    }
    let cards = [card(Vec::new()), MigCard { address: OTHER.into(), ..card(Vec::new()) }];
    let mdev = options_of(fixture, groups.iter().cloned());
    let discovery = Discovery { mdev, ..Discovery::default() };
    let mig = Some(MigScan { cards: &cards, is_ours: &|_| false });
    let context = ScanContext { mig, ..ScanContext::default() };
    let found = discovery.scan_with(&fixture.sysfs(), &|_| false, context).expect("readable");
    let of_card = |address: &str| {
        let devices = found.devices.iter().filter(|device| device.address == address);
        let profiles = devices.flat_map(|device| &device.mig.as_ref().expect("MIG mode").profiles);
        profiles.flat_map(|profile| profile.vgpu_types.clone()).collect()
    };
    ([of_card(CARD), of_card(OTHER)], reasons(&found))
}

#[test]
fn an_operator_keeps_cards_for_a_type_or_lists_them_for_one() {
    let plain = MdevGroup::default;
    let least = |least| MdevGroup { min_instances: Some(least), ..plain() };
    let both = || BOTH.map(str::to_owned).to_vec();
    let large = || vec![BOTH[1].to_owned()];
    let kept = |most| types_of(&[(BOTH[0], plain()), (BOTH[1], least(most))]);
    assert_eq!(kept(0), ([both(), both()], Vec::new()));
    assert_eq!(kept(1), ([large(), both()], Vec::new()));
    assert_eq!(kept(2), ([large(), both()], Vec::new()));
    assert_eq!(kept(3), ([large(), large()], Vec::new()));
    let why = "[mdev_nvidia-478]: min_instances = 5, but its cards hold only 4";
    assert_eq!(kept(5), ([large(), large()], vec![why.to_owned()]));
    // Three functions limit a card to three of its seven small instances.
    let small = types_of(&[(BOTH[0], least(4)), (BOTH[1], plain())]);
    assert_eq!(small, ([vec![BOTH[0].to_owned()], vec![BOTH[0].to_owned()]], Vec::new()));
    // A type that needs no instance has its own cards.
    let other = types_of(&[(BOTH[0], plain()), ("nvidia-1", least(1))]);
    assert_eq!(other.1, Vec::<String>::new());
    let listed = MdevGroup { device_addresses: vec![CARD.to_owned()], ..plain() };
    let types = types_of(&[(BOTH[0], plain()), (BOTH[1], listed)]);
    assert_eq!(types, ([large(), vec![BOTH[0].to_owned()]], Vec::new()));
}

/// Neither a foreign guest's type nor an unreadable function changes which cards are kept.
#[test]
fn types_and_unreadable_functions_change_no_kept_card() {
    let least = MdevGroup { min_instances: Some(3), ..MdevGroup::default() };
    let groups = [(BOTH[0], least), (BOTH[1], MdevGroup::default())];
    let kept = |fixture: &Fixture| types_beside(fixture, &groups).0;
    let both = BOTH.map(str::to_owned).to_vec();
    let expected = [vec![BOTH[0].to_owned()], both.clone()];
    assert_eq!(kept(&a100([0; 3])), expected);
    assert_eq!(kept(&a100([0, 478, 0])), expected, "a foreign type");
    assert_eq!(kept(&a100([474; 3])), [Vec::new(), both], "the kept card offers nothing");
    let fixture = a100([0; 3]);
    fixture.spoil("devices/pci0000:41/0000:41:00.5/nvidia/current_vgpu_type");
    assert_eq!(kept(&fixture), expected, "an unreadable function");
}

/// No option offers a card that the driver cannot read.
#[test]
fn an_unreadable_card_is_left_out_and_reported() {
    let fixture = a100([0; 3]);
    let lost = MigCard::unreadable(CARD, "the GPU is lost".into());
    let specs = DeviceSpec::parse(r#"{"vendor_id": "10de"}"#).expect("a valid entry");
    let drivers = vec![Driver::NvidiaGpu];
    let others = Discovery { specs, drivers, ..Discovery::default() };
    let found = scan_with(others, &fixture, lost, &BOTH, &[]);
    assert_eq!(found.devices, []);
    let all = reasons(&found);
    assert!(all.iter().any(|one| one.contains("the GPU is lost")), "{all:?}");
}

#[test]
fn a_survey_shows_the_instances_that_a_card_offers() {
    let fixture = a100([0; 3]);
    let discovery = Discovery { mdev: options(&fixture, &BOTH), ..Discovery::default() };
    let found = survey(&fixture.sysfs(), &discovery, &[card(Vec::new())]).expect("it succeeds");
    assert_eq!(found.offered, scan(&fixture, card(Vec::new()), &BOTH, &[]).devices);
}

#[test]
fn a_card_with_too_many_slices_is_reported() {
    let large = MigCard { slices: 12, ..card(Vec::new()) };
    let others = Discovery { drivers: vec![Driver::NvidiaGpu], ..Discovery::default() };
    let found = scan_with(others, &a100([0; 3]), large, &BOTH, &[]);
    let all = reasons(&found);
    assert!(all[0].contains("a card with 12 memory slices is not supported"), "{all:?}");
    assert_eq!(found.devices, []);
}

#[test]
fn a_function_that_cannot_be_read_is_left_out_and_reported() {
    let fixture = a100([0; 3]);
    fixture.spoil("devices/pci0000:41/0000:41:00.5/nvidia/current_vgpu_type");
    let found = scan(&fixture, card(Vec::new()), &BOTH, &[]);
    assert_eq!(found.devices[0].deployables[0].slots.len(), 2);
    let all = reasons(&found);
    assert!(all.len() == 1 && all[0].contains("current_vgpu_type"), "{all:?}");
}

#[test]
fn what_needs_no_instance_is_reported() {
    let found = scan(&a100([0; 3]), card(Vec::new()), &["nvidia-1"], &[]);
    assert_eq!((found.devices.len(), reasons(&found).len()), (0, 0));
    let fixture = Fixture::new();
    fixture.function(CARD, IDS, 1, "nvidia");
    let found = scan(&fixture, card(Vec::new()), &BOTH, &[]);
    let all = reasons(&found);
    assert!(all[0].contains("none of its virtual functions can be a vGPU"), "{all:?}");
}
