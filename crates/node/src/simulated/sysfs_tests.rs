//! Tests of the simulated kernel through the Rust trait [`Sysfs`].

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kilonova_devices::{Mdev, MigDriver, Sysfs, create, find, mdevs, parents, remove};
use kilonova_node_api::{GpuInstance, MigPlacement};
use uuid::Uuid;

use super::SimulatedSysfs;
use crate::topology::{Topology, Tree};

const FILE: &str = r#"
[card.m10]
vendor = "10de"
product = "13bd"
driver = "nvidia"
exclusive_types = true
types = [
    { id = "nvidia-35", name = "GRID M10-0B", available_instances = 16 },
    { id = "nvidia-45", name = "GRID M10-8Q", available_instances = 1 },
]
[card.a40]
vendor = "10de"
product = "2235"
exclusive_types = true
types = [{ id = "nvidia-558", available_instances = 2 }]
[card.a100]
vendor = "10de"
product = "20b0"
vfio_types = true
mig = "a100-40gb"
types = [{ id = "nvidia-36", available_instances = 2, mig_profile = "3g.20gb" }]
[card.mtty]
types = [{ id = "mtty-1", available_instances = 24 }, { id = "mtty-2", available_instances = 12 }]
[[host]]
name = "h"
vcpus = 1
memory_mb = 1
disk_gb = 1
card = [
    { card = "m10", addresses = ["0000:84:00.0", "0000:85:00.0"], numa_node = 1 },
    { card = "a40", addresses = ["0000:25:00.0"], vfs = 3 },
    { card = "mtty", addresses = ["mtty_mtty"] },
]
"#;

fn tree() -> Arc<Tree> {
    let topology = Topology::parse(FILE, Path::new("t.toml")).expect("the topology is valid");
    Arc::clone(&topology.hosts[0].template.tree)
}

fn make(
    sysfs: &SimulatedSysfs,
    parent: &str,
    mdev_type: &str,
) -> Result<Uuid, kilonova_devices::Error> {
    let uuid = Uuid::new_v4();
    create(sysfs, &Mdev { uuid, parent: parent.into(), mdev_type: mdev_type.into() }).map(|()| uuid)
}

fn available(sysfs: &SimulatedSysfs, parent: &str, mdev_type: &str) -> u32 {
    let all = parents(sysfs).expect("the directory is readable");
    let parent = all.iter().find(|one| one.address == parent).expect("the element exists");
    parent.available(sysfs, mdev_type).expect("the types are readable")
}

#[test]
fn links_resolve_as_in_the_kernel() {
    let sysfs = SimulatedSysfs::in_memory(tree());
    let addresses: Vec<String> = parents(&sysfs)
        .expect("the directory is readable")
        .into_iter()
        .map(|p| p.address)
        .collect();
    assert_eq!(
        addresses,
        [
            "0000:25:00.4",
            "0000:25:00.5",
            "0000:25:00.6",
            "0000:84:00.0",
            "0000:85:00.0",
            "mtty_mtty"
        ]
    );
    assert_eq!(
        sysfs.real("class/mdev_bus/mtty").expect("the link exists"),
        "devices/virtual/mtty/mtty"
    );
    assert_eq!(
        sysfs.real("bus/pci/devices/0000:25:00.4/physfn").expect("the link exists"),
        "devices/pci0000:25/0000:25:00.0"
    );
    assert_eq!(
        sysfs.real("bus/pci/devices/0000:84:00.0/driver").expect("the link exists"),
        "bus/pci/drivers/nvidia"
    );
    assert_eq!(
        sysfs.read("bus/pci/devices/0000:84:00.0/vendor").expect("the file is readable"),
        "0x10de"
    );
    assert!(sysfs.read("bus/pci/devices/0000:99:00.0/vendor").is_err());
    assert!(sysfs.write("bus/pci/devices/0000:84:00.0/vendor", "0").is_err());
    for path in ["class/mdev_bus", "bus/pci/devices"] {
        for name in sysfs.list(path).expect("the directory is readable") {
            let below = format!("{path}/{name}");
            for file in sysfs.list(&below).expect("the directory is readable") {
                assert!(sysfs.exists(&format!("{below}/{file}")), "{below}/{file}");
            }
        }
    }
}

#[test]
fn a_type_in_use_excludes_others_on_its_gpu_only() {
    let sysfs = SimulatedSysfs::in_memory(tree());
    let first = make(&sysfs, "0000:84:00.0", "nvidia-35").expect("the mdev is created");
    assert_eq!(available(&sysfs, "0000:84:00.0", "nvidia-35"), 15);
    assert_eq!(available(&sysfs, "0000:84:00.0", "nvidia-45"), 0);
    assert_eq!(available(&sysfs, "0000:85:00.0", "nvidia-45"), 1);
    assert!(make(&sysfs, "0000:84:00.0", "nvidia-45").is_err());
    for _ in 0..15 {
        make(&sysfs, "0000:84:00.0", "nvidia-35").expect("the mdev is created");
    }
    let full = make(&sysfs, "0000:84:00.0", "nvidia-35").expect_err("the card is full").to_string();
    assert!(full.contains("0000:84:00.0"), "{full}");
    remove(&sysfs, first).expect("the file is removed");
    assert_eq!(available(&sysfs, "0000:84:00.0", "nvidia-35"), 1);
    assert_eq!(mdevs(&sysfs).expect("the directory is readable").len(), 15);
}

#[test]
fn non_exclusive_types_share_the_device() {
    let sysfs = SimulatedSysfs::in_memory(tree());
    make(&sysfs, "mtty_mtty", "mtty-2").expect("the mdev is created");
    make(&sysfs, "mtty_mtty", "mtty-1").expect("the mdev is created");
    assert_eq!(available(&sysfs, "mtty_mtty", "mtty-1"), 21);
    assert_eq!(available(&sysfs, "mtty_mtty", "mtty-2"), 10);
}

#[test]
fn virtual_functions_hold_one_each_until_the_card_is_full() {
    let sysfs = SimulatedSysfs::in_memory(tree());
    make(&sysfs, "0000:25:00.4", "nvidia-558").expect("the mdev is created");
    assert_eq!(available(&sysfs, "0000:25:00.4", "nvidia-558"), 0);
    assert_eq!(available(&sysfs, "0000:25:00.5", "nvidia-558"), 1);
    make(&sysfs, "0000:25:00.5", "nvidia-558").expect("the mdev is created");
    assert_eq!(available(&sysfs, "0000:25:00.6", "nvidia-558"), 0);
}

#[test]
fn devices_are_kept_in_files_and_found_again() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let open = || {
        SimulatedSysfs::open(tree(), folder.path().join("mdevs"), Duration::ZERO, Some(1))
            .expect("the directory is readable")
    };
    let sysfs = open();
    assert!(make(&sysfs, "0000:84:00.0", "nvidia-35").is_err(), "the planned failure");
    let kept = make(&sysfs, "0000:84:00.0", "nvidia-35").expect("the mdev is created");
    let removed = make(&sysfs, "mtty_mtty", "mtty-1").expect("the mdev is created");
    remove(&sysfs, removed).expect("the file is removed");
    let unknown = folder.path().join("mdevs").join(Uuid::new_v4().to_string());
    std::fs::write(&unknown, "0000:84:00.0 x\n").expect("the file is written");
    let again = open();
    assert!(unknown.exists(), "the host has the card");
    let all = mdevs(&again).expect("the directory is readable");
    assert_eq!(
        all,
        [Mdev { uuid: kept, parent: "0000:84:00.0".into(), mdev_type: "nvidia-35".into() }]
    );
    assert_eq!(find(&again, removed).expect("the directory is readable"), None);
}

#[test]
fn a_card_that_was_lost_returns_without_its_devices() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let tree_of = |text: &str| {
        let topology = Topology::parse(text, Path::new("t.toml")).expect("the topology is valid");
        Arc::clone(&topology.hosts[0].template.tree)
    };
    let open = |text: &str| {
        let folder = folder.path().join("mdevs");
        let opened = SimulatedSysfs::open(tree_of(text), folder, Duration::ZERO, Some(0));
        opened.expect("the directory is readable")
    };
    let whole = open(FILE);
    let kept = make(&whole, "0000:84:00.0", "nvidia-35").expect("the mdev is created");
    make(&whole, "0000:85:00.0", "nvidia-35").expect("the mdev is created");
    assert_eq!(available(&whole, "0000:85:00.0", "nvidia-35"), 15);
    open(&FILE.replace(r#", "0000:85:00.0""#, ""));
    let whole = open(FILE);
    let all = mdevs(&whole).expect("the directory is readable");
    assert_eq!(all.iter().map(|mdev| mdev.uuid).collect::<Vec<_>>(), [kept]);
    assert_eq!(available(&whole, "0000:85:00.0", "nvidia-35"), 16);
}

#[test]
fn gpu_instances_are_kept_unless_their_card_was_lost() {
    let folder = tempfile::tempdir().expect("a temporary directory is created");
    let both = FILE.replace(
        "card = [\n",
        "card = [\n    { card = \"a100\", addresses = [\"0000:41:00.0\", \"0000:c1:00.0\"], vfs = 2 },\n",
    );
    let open = |text: &str| {
        let topology = Topology::parse(text, Path::new("t.toml")).expect("the topology is valid");
        let tree = Arc::clone(&topology.hosts[0].template.tree);
        let folder = folder.path().join("mdevs");
        let opened = SimulatedSysfs::open(tree, folder, Duration::ZERO, Some(0));
        opened.expect("the directory is readable")
    };
    let of = |sysfs: &SimulatedSysfs| {
        let cards = sysfs.cards().expect("the cards are readable");
        let all: Vec<_> = cards.into_iter().flat_map(|card| card.instances).collect();
        all.into_iter().map(|one| one.card).collect::<Vec<_>>()
    };
    let type_of = |sysfs: &SimulatedSysfs, function: &str| {
        let path = format!("bus/pci/devices/{function}/nvidia/current_vgpu_type");
        sysfs.read(&path).expect("the file is readable")
    };
    let whole = open(&both);
    for card in ["0000:41:00.0", "0000:c1:00.0"] {
        let place = MigPlacement { start: 0, size: 4 };
        let instance = GpuInstance { card: card.into(), profile: "3g.20gb".into(), place };
        MigDriver::create(&whole, &instance).expect("the card is empty");
        let function = card.replace(".0", ".4");
        let path = format!("bus/pci/devices/{function}/nvidia/current_vgpu_type");
        whole.write(&path, "36").expect("the function gets the type");
    }
    let again = open(&both);
    assert_eq!(of(&again), ["0000:41:00.0", "0000:c1:00.0"]);
    assert_eq!(type_of(&again, "0000:c1:00.4"), "36");
    open(&both.replace(r#", "0000:c1:00.0""#, ""));
    let again = open(&both);
    assert_eq!(of(&again), ["0000:41:00.0"]);
    assert_eq!(type_of(&again, "0000:41:00.4"), "36");
    assert_eq!(type_of(&again, "0000:c1:00.4"), "0");
}

#[test]
fn the_kernel_refuses_bad_and_duplicate_uuids() {
    let sysfs = SimulatedSysfs::in_memory(tree());
    let path = "bus/pci/devices/0000:84:00.0/mdev_supported_types/nvidia-35/create";
    assert!(sysfs.write(path, "../../x").is_err());
    let uuid = Uuid::new_v4().to_string();
    sysfs.write(path, &uuid).expect("the file is written");
    assert_eq!(
        sysfs.write(path, &uuid).expect_err("an existing device is refused").kind(),
        std::io::ErrorKind::AlreadyExists
    );
    assert!(sysfs.write(&format!("bus/mdev/devices/{uuid}/remove"), "0").is_err());
    assert!(sysfs.exists(&format!("devices/pci0000:84/0000:84:00.0/{uuid}")));
}
