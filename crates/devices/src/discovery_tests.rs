//! Discovery on fixture directories, and creating and removing mediated devices.

use std::collections::BTreeMap;

use kilonova_node_api::{Device, DeviceKind, HandleSlot};
use uuid::Uuid;

use super::Discovery;
use crate::testing::Fixture;
use crate::{
    Error, Fake, Function, Mdev, MdevConfig, MdevGroup, MdevOptions, create, find, mdevs, remove,
};

const GPU: &str = "devices/pci0000:84/0000:84:00.0";

fn discovery(fixture: &Fixture, types: &[(&str, MdevGroup)]) -> Discovery {
    let enabled: Vec<String> = types.iter().map(|(name, _)| (*name).to_owned()).collect();
    let groups: BTreeMap<_, _> =
        types.iter().map(|(name, group)| ((*name).to_owned(), group.clone())).collect();
    let options = MdevOptions { enabled, groups, retyping: false, mig_instances: false };
    let mdev = MdevConfig::new(&options, &fixture.sysfs()).expect("the options are valid");
    Discovery { mdev, ..Discovery::default() }
}

fn found(fixture: &Fixture, discovery: &Discovery, ours: &[Uuid]) -> Vec<Device> {
    discovery.devices(&fixture.sysfs(), &|uuid| ours.contains(&uuid)).expect("the bus is readable")
}

fn counts(devices: &[Device]) -> Vec<(String, u32)> {
    let count = |device: &Device| match device.deployables[0].slots[..] {
        [HandleSlot::Mdev { count, .. }] => (device.address.clone(), count),
        _ => panic!("{device:?}"),
    };
    devices.iter().map(count).collect()
}

fn capped(most: u32) -> MdevGroup {
    MdevGroup { max_instances: Some(most), ..MdevGroup::default() }
}

#[test]
fn a_gpu_is_one_device_with_one_deployable() {
    let fixture = Fixture::new();
    fixture
        .gpu("0000:84:00.0", &[("nvidia-35", "GRID M10-0B", 16), ("nvidia-36", "GRID M10-0Q", 16)]);
    let devices =
        found(&fixture, &discovery(&fixture, &[("nvidia-35", MdevGroup::default())]), &[]);
    let [device] = &devices[..] else { panic!("{devices:?}") };
    assert_eq!(
        (device.address.as_str(), device.kind, device.numa_node),
        ("0000:84:00.0", DeviceKind::Gpu, 1)
    );
    assert_eq!((device.vendor_id.as_str(), device.product_id.as_str()), ("10de", "13bd"));
    let [deployable] = &device.deployables[..] else { panic!("{device:?}") };
    assert_eq!(deployable.name, "pci_0000_84_00_0");
    assert_eq!(deployable.resource_class, "VGPU");
    assert_eq!(deployable.driver, "nvidia");
    assert_eq!(deployable.traits, ["OWNER_NOVA", "CUSTOM_NVIDIA_35", "CUSTOM_NVIDIA_13BD_M10_0B"]);
    assert_eq!(deployable.slots, [HandleSlot::Mdev { mdev_type: "nvidia-35".into(), count: 16 }]);
}

#[test]
fn a_host_without_mdev_parents_has_no_devices() {
    let fixture = Fixture::new();
    assert!(
        found(&fixture, &discovery(&fixture, &[("nvidia-35", MdevGroup::default())]), &[])
            .is_empty()
    );
}

#[test]
fn our_devices_count_and_foreign_ones_use_capacity() {
    let fixture = Fixture::new();
    fixture.gpu("0000:84:00.0", &[("nvidia-35", "GRID M10-0B", 14)]);
    let ours = fixture.mdev(GPU, "nvidia-35");
    let _theirs = fixture.mdev(GPU, "nvidia-35");
    let discovery = discovery(&fixture, &[("nvidia-35", MdevGroup::default())]);
    assert_eq!(counts(&found(&fixture, &discovery, &[ours])), [("0000:84:00.0".to_owned(), 15)]);
}

#[test]
fn a_gpu_without_its_type_or_full_of_another_is_left_out() {
    let fixture = Fixture::new();
    fixture
        .gpu("0000:84:00.0", &[("nvidia-35", "GRID M10-0B", 0), ("nvidia-36", "GRID M10-0Q", 15)]);
    fixture.gpu("0000:85:00.0", &[("nvidia-36", "GRID M10-0Q", 16)]);
    assert!(
        found(&fixture, &discovery(&fixture, &[("nvidia-35", MdevGroup::default())]), &[])
            .is_empty()
    );
}

#[test]
fn the_limit_never_removes_existing_devices() {
    let fixture = Fixture::new();
    for address in ["0000:84:00.0", "0000:85:00.0", "0000:86:00.0"] {
        fixture.gpu(address, &[("nvidia-35", "GRID M10-0B", 16)]);
    }
    let pairs =
        |all: &[(&str, u32)]| all.iter().map(|(a, n)| ((*a).to_owned(), *n)).collect::<Vec<_>>();
    let capped_at =
        |most| counts(&found(&fixture, &discovery(&fixture, &[("nvidia-35", capped(most))]), &[]));
    assert_eq!(capped_at(20), pairs(&[("0000:84:00.0", 16), ("0000:85:00.0", 4)]));
    assert_eq!(
        capped_at(100),
        pairs(&[("0000:84:00.0", 16), ("0000:85:00.0", 16), ("0000:86:00.0", 16)])
    );
    let last = fixture.mdev("devices/pci0000:86/0000:86:00.0", "nvidia-35");
    let discovery = discovery(&fixture, &[("nvidia-35", capped(3))]);
    assert_eq!(
        counts(&found(&fixture, &discovery, &[last])),
        pairs(&[("0000:84:00.0", 2), ("0000:86:00.0", 1)])
    );
}

#[test]
fn virtual_parents_are_devices_too() {
    let fixture = Fixture::new();
    fixture.mtty(24);
    let group = MdevGroup {
        device_addresses: vec!["mtty_mtty".into()],
        mdev_class: Some(kilonova_ids::ResourceClass::verbatim("CUSTOM_SERIAL")),
        max_instances: None,
        min_instances: None,
    };
    let devices = found(&fixture, &discovery(&fixture, &[("mtty-1", group)]), &[]);
    assert_eq!(counts(&devices), [("mtty_mtty".to_owned(), 24)]);
    assert_eq!(devices[0].kind, DeviceKind::Mdev);
    assert_eq!(devices[0].deployables[0].name, "mtty_mtty");
    assert_eq!(devices[0].deployables[0].resource_class, "CUSTOM_SERIAL");
    assert_eq!(devices[0].deployables[0].driver, "mtty");
}

#[test]
fn functions_with_virtual_functions_offer_those() {
    let fixture = Fixture::new();
    let whole = fixture.function("0000:0c:00.0", ("8086", "09c4", "120000"), 0, "fpga");
    fixture.function("0000:0d:00.0", ("8086", "09c4", "120000"), 0, "fpga");
    let ids = ("8086", "09c5", "120000");
    fixture.virtual_functions("0000:0d:00.0", "0000:0d:00.4", 2, ids, "vfio-pci");
    let function = |address: &str| Function {
        address: address.into(),
        resource_class: kilonova_ids::ResourceClass::verbatim("FPGA"),
        traits: vec!["CUSTOM_FPGA_INTEL".into()],
    };
    let functions = ["0000:0c:00.0", "0000:0d:00.0", "0000:0e:00.0"].map(function).to_vec();
    let fake = Fake {
        address: "0000:0f:00.0".into(),
        name: "FakeDevice".into(),
        kind: DeviceKind::Fpga,
        resource_class: kilonova_ids::ResourceClass::verbatim("FPGA"),
        traits: vec!["CUSTOM_FAKE_DEVICE".into()],
        handles: vec!["0000:0f:00.0".into(), "0000:0f:00.1".into()],
    };
    let discovery = Discovery { functions, fakes: vec![fake], ..Discovery::default() };
    let devices = found(&fixture, &discovery, &[]);
    let slots: Vec<_> = devices.iter().map(|device| device.deployables[0].slots.clone()).collect();
    let pci = |address: &str| HandleSlot::Pci { address: address.into() };
    let test = |address: &str| HandleSlot::TestPci { address: address.into() };
    assert_eq!(
        slots,
        [
            vec![pci("0000:0c:00.0")],
            vec![pci("0000:0d:00.4"), pci("0000:0d:00.5")],
            vec![test("0000:0f:00.0"), test("0000:0f:00.1")]
        ]
    );
    assert_eq!(devices[2].deployables[0].name, "FakeDevice");
    assert!(whole.ends_with("0000:0c:00.0"));
}

#[test]
fn creating_a_device_writes_its_uuid_and_checks_existing_ones() {
    let fixture = Fixture::new();
    fixture
        .gpu("0000:84:00.0", &[("nvidia-35", "GRID M10-0B", 16), ("nvidia-36", "GRID M10-0Q", 16)]);
    let sysfs = fixture.sysfs();
    let mdev = |uuid, parent: &str, mdev_type: &str| Mdev {
        uuid,
        parent: parent.into(),
        mdev_type: mdev_type.into(),
    };
    let uuid = Uuid::new_v4();
    create(&sysfs, &mdev(uuid, "0000:84:00.0", "nvidia-35")).expect("the mdev is created");
    assert_eq!(
        fixture.content(&format!("{GPU}/mdev_supported_types/nvidia-35/create")),
        uuid.to_string()
    );

    let there = fixture.mdev(GPU, "nvidia-35");
    assert_eq!(
        find(&sysfs, there).expect("the bus is readable"),
        Some(mdev(there, "0000:84:00.0", "nvidia-35"))
    );
    create(&sysfs, &mdev(there, "0000:84:00.0", "nvidia-35"))
        .expect("creating an existing device succeeds");
    let other = create(&sysfs, &mdev(there, "0000:84:00.0", "nvidia-36"));
    assert!(matches!(other, Err(Error::Conflict { .. })), "{other:?}");
    assert!(matches!(
        create(&sysfs, &mdev(uuid, "0000:99:00.0", "nvidia-35")),
        Err(Error::NoParent(_))
    ));
    assert!(matches!(
        create(&sysfs, &mdev(uuid, "0000:84:00.0", "nvidia-99")),
        Err(Error::NoType { .. })
    ));
}

#[test]
fn removing_a_missing_device_succeeds() {
    let fixture = Fixture::new();
    fixture.gpu("0000:84:00.0", &[("nvidia-35", "GRID M10-0B", 16)]);
    let sysfs = fixture.sysfs();
    let there = fixture.mdev(GPU, "nvidia-35");
    assert_eq!(mdevs(&sysfs).expect("the bus is readable").len(), 1);
    remove(&sysfs, there).expect("the mdev is removed");
    assert_eq!(fixture.content(&format!("{GPU}/{there}/remove")), "1");
    remove(&sysfs, Uuid::new_v4()).expect("removing an absent device succeeds");
}

#[test]
fn options_without_effect_are_named_once() {
    let fixture = Fixture::new();
    fixture.gpu("0000:84:00.0", &[("nvidia-35", "GRID M10-0B", 16)]);
    fixture.gpu("0000:85:00.0", &[("nvidia-36", "GRID M10-0Q", 16)]);
    let on = |addresses: &[&str]| MdevGroup {
        device_addresses: addresses.iter().map(|one| (*one).to_owned()).collect(),
        ..MdevGroup::default()
    };
    let ineffective_options = |types: &[(&str, MdevGroup)]| {
        discovery(&fixture, types)
            .ineffective_options(&fixture.sysfs(), &[])
            .expect("the bus is readable")
    };
    assert_eq!(ineffective_options(&[("nvidia-35", MdevGroup::default())]), Vec::<String>::new());
    assert_eq!(
        ineffective_options(&[("nvidia-99", MdevGroup::default())]),
        ["[devices] enabled_mdev_types: no device of this host offers nvidia-99"]
    );
    let all = ineffective_options(&[
        ("nvidia-35", on(&["0000:84:00.0", "0000:85:00.0"])),
        ("nvidia-36", on(&["0000:99:00.0"])),
    ]);
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].contains("The PCI address 0000:99:00.0 was invalid"), "{all:?}");
    assert_eq!(ineffective_options(&[]), Vec::<String>::new());
}
