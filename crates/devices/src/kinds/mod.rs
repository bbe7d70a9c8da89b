//! The kinds of devices, one file each: which functions belong to the kind, and what they offer.

pub(crate) mod allowed;
pub(crate) mod fpga;
pub(crate) mod gpu;
pub(crate) mod mdev;
pub(crate) mod nic;
pub(crate) mod nvme;
pub(crate) mod qat;
pub(crate) mod vgpu;

use std::collections::BTreeMap;

use kilonova_node_api::{Deployable, DeviceKind, HandleSlot};

use crate::Sysfs;
use crate::bus::{Bus, OnBus};
use crate::collector::{Named, Offer};

/// Owner trait of devices from Nova's options.
pub(crate) const OWNER_NOVA: &str = "OWNER_NOVA";
/// Owner trait of devices from Cyborg's drivers.
pub(crate) const OWNER_CYBORG: &str = "OWNER_CYBORG";

/// The input of a device kind: the kernel's files and the bus read from them.
#[derive(Clone, Copy)]
pub(crate) struct KindInput<'a> {
    pub sysfs: &'a dyn Sysfs,
    pub bus: &'a Bus,
}

/// The virtual functions of a card, or the card itself if it has none.
pub(crate) fn parts_of<'a>(bus: &'a Bus, card: &'a OnBus) -> Vec<&'a OnBus> {
    let virtuals: Vec<&OnBus> = bus.virtuals(card.place).collect();
    if virtuals.is_empty() { vec![card] } else { virtuals }
}

/// One function as one deployable, named by its address as in Cyborg.
pub(crate) fn whole(
    on_bus: &OnBus,
    kind: DeviceKind,
    resource_class: &str,
    traits: Vec<String>,
    driver: &str,
) -> Offer {
    let address = on_bus.address.clone();
    Offer {
        device: on_bus.card().to_string(),
        kind,
        named: Named::So(address.clone()),
        part: Deployable {
            name: String::new(),
            resource_class: resource_class.to_owned(),
            traits: [OWNER_CYBORG.to_owned()].into_iter().chain(traits).collect(),
            driver: driver.to_owned(),
            facts: BTreeMap::new(),
            slots: vec![HandleSlot::Pci { address }],
        },
    }
}

#[cfg(test)]
mod tests;
