//! The device tree of a simulated host.

use std::collections::BTreeMap;
use std::sync::Arc;

use kilonova_devices::PciAddress;
use kilonova_packing::mig::Geometry;

/// All devices of a host.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The devices and functions, in the order of the topology file; virtual functions follow their
    /// physical function.
    pub slots: Vec<Slot>,
}

/// A device or a function.
#[derive(Debug, PartialEq, Eq)]
pub struct Slot {
    /// `0000:84:00.0`, or `mtty_mtty`.
    pub address: String,
    /// Its directory, such as `devices/pci0000:84/0000:84:00.0` or `devices/virtual/mtty/mtty`.
    pub path: String,
    /// NUMA node; -1 for none.
    pub numa_node: i64,
    /// The card type.
    pub card: Arc<Card>,
    /// For a virtual function: the slot of its physical function.
    pub physical: Option<usize>,
    /// For a physical function: the slots of its virtual functions.
    pub virtuals: Vec<usize>,
}

/// A card type.
#[derive(Debug, PartialEq, Eq)]
pub struct Card {
    /// Four hex digits.
    pub vendor: String,
    /// Four hex digits.
    pub product: String,
    /// Six hex digits.
    pub class: String,
    /// Product id of its virtual functions, four hex digits.
    pub vf_product: String,
    /// Kernel driver.
    pub driver: String,
    /// True if the card offers only one type at a time: a type in use excludes the others.
    pub exclusive: bool,
    /// The types of mediated devices or vGPUs.
    pub types: Vec<MdevType>,
    /// True if virtual functions get their type from the vendor's VFIO driver, without mediated
    /// devices.
    pub vfio_types: bool,
    /// The geometry of a card in MIG mode.
    pub mig: Option<Geometry>,
    /// Additional files of the card, by path below its directory.
    pub files: BTreeMap<String, String>,
    /// Additional files of each virtual function.
    pub vf_files: BTreeMap<String, String>,
}

/// A type of mediated device.
#[derive(Debug, PartialEq, Eq)]
pub struct MdevType {
    /// `nvidia-35`.
    pub id: String,
    /// The name.
    pub name: String,
    /// The description.
    pub description: String,
    /// `vfio-pci`.
    pub device_api: String,
    /// Number of devices of this type that an empty card has room for.
    pub instances: u32,
    /// The profile of its GPU instance.
    pub mig_profile: Option<String>,
}

impl Slot {
    /// True if it is an mdev parent. If a card has virtual functions, those are the parents.
    pub fn is_parent(&self) -> bool {
        !self.card.types.is_empty() && self.virtuals.is_empty() && !self.card.vfio_types
    }

    /// True if it is a virtual function that gets its type without mediated devices.
    pub fn has_vfio_types(&self) -> bool {
        self.card.vfio_types && self.physical.is_some()
    }

    /// Its additional files.
    pub fn files(&self) -> &BTreeMap<String, String> {
        if self.physical.is_some() { &self.card.vf_files } else { &self.card.files }
    }

    /// Its product id.
    pub fn product(&self) -> &str {
        if self.physical.is_some() { &self.card.vf_product } else { &self.card.product }
    }

    /// True if it is on the PCI bus.
    pub fn is_pci(&self) -> bool {
        PciAddress::parse(&self.address).is_some()
    }
}

impl Tree {
    /// The slot with this address.
    pub fn by_address(&self, address: &str) -> Option<usize> {
        self.slots.iter().position(|slot| slot.address == address)
    }
}
