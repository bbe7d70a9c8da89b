//! The device tree of a simulated host, as the kernel would know it.

use std::collections::BTreeMap;
use std::sync::Arc;

use kilonova_devices::PciAddress;

/// All devices of a host.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The functions, by address.
    pub slots: Vec<Slot>,
}

/// A device or function in its place.
#[derive(Debug, PartialEq, Eq)]
pub struct Slot {
    /// `0000:84:00.0`, or `mtty_mtty`.
    pub address: String,
    /// Its folder: `devices/pci0000:84/0000:84:00.0`, `devices/virtual/mtty/mtty`.
    pub path: String,
    /// -1 for none.
    pub numa_node: i64,
    /// What kind of card it is.
    pub card: Arc<Card>,
    /// For a virtual function: the slot of its physical function.
    pub physical: Option<usize>,
    /// For a physical function: the slots of its virtual functions.
    pub virtuals: Vec<usize>,
}

/// A kind of card.
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
    /// Whether one type in use shuts out the others.
    pub exclusive: bool,
    /// The types that it can be cut into.
    pub types: Vec<MdevType>,
    /// Whether its virtual functions are given their type by the vendor's VFIO driver, without
    /// mediated devices.
    pub vfio_types: bool,
    /// Further files of the card, by path below its folder.
    pub files: BTreeMap<String, String>,
    /// Further files of each virtual function.
    pub vf_files: BTreeMap<String, String>,
}

/// A type of mediated device that a card can be cut into.
#[derive(Debug, PartialEq, Eq)]
pub struct MdevType {
    /// `nvidia-35`.
    pub id: String,
    /// For people.
    pub name: String,
    /// For people.
    pub description: String,
    /// `vfio-pci`.
    pub device_api: String,
    /// How many an empty card holds.
    pub instances: u32,
}

impl Slot {
    /// Whether mediated devices can be made on it: on virtual functions where there are some.
    pub fn is_parent(&self) -> bool {
        !self.card.types.is_empty() && self.virtuals.is_empty() && !self.card.vfio_types
    }

    /// Whether it is a virtual function that is given its type without mediated devices.
    pub fn has_vfio_types(&self) -> bool {
        self.card.vfio_types && self.physical.is_some()
    }

    /// Its further files.
    pub fn files(&self) -> &BTreeMap<String, String> {
        if self.physical.is_some() { &self.card.vf_files } else { &self.card.files }
    }

    /// Its product id.
    pub fn product(&self) -> &str {
        if self.physical.is_some() { &self.card.vf_product } else { &self.card.product }
    }

    /// Whether it is on the PCI bus.
    pub fn is_pci(&self) -> bool {
        PciAddress::parse(&self.address).is_some()
    }
}

impl Tree {
    /// The slot of an address.
    pub fn by_address(&self, address: &str) -> Option<usize> {
        self.slots.iter().position(|slot| slot.address == address)
    }
}
