//! From sysfs and options to the devices that a node registers.
//!
//! Counts only room that the control plane may give away: mediated devices that somebody else made
//! take room but are not counted, as no guest of ours will ever be given one of them.

use std::collections::BTreeMap;

use kilonova_node_api::{Deployable, Device, DeviceKind, HandleSlot, Health};
use uuid::Uuid;

use crate::{
    Error, Fake, Function, Mdev, MdevConfig, Parent, PciFunction, Sysfs, device_name, mdevs,
    parents,
};

/// What to look for on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Which mdev parents are cut into what.
    pub mdev: MdevConfig,
    /// Functions that are passed through whole.
    pub functions: Vec<Function>,
    /// Cards that exist only on paper.
    pub fakes: Vec<Fake>,
}

struct Found {
    parent: Parent,
    mdev_type: String,
    ours: u32,
    available: u32,
}

impl Discovery {
    /// All devices of the host, by address. `is_ours` tells the mediated devices that were made for
    /// guests of this control plane from those that somebody else made.
    pub fn devices(
        &self,
        sysfs: &dyn Sysfs,
        is_ours: &dyn Fn(Uuid) -> bool,
    ) -> Result<Vec<Device>, Error> {
        let mut devices = Vec::new();
        if self.mdev.is_enabled() {
            devices.extend(self.mdev_devices(sysfs, is_ours)?);
        }
        devices.extend(self.functions.iter().filter_map(|function| function.device(sysfs)));
        devices.extend(self.fakes.iter().map(Fake::device));
        devices.sort_by(|a, b| a.address.cmp(&b.address));
        devices.dedup_by(|a, b| {
            let same = a.address == b.address;
            if same {
                tracing::warn!(address = %a.address, "a device is configured twice; the second entry is left out");
            }
            same
        });
        Ok(devices)
    }

    /// What of the options has no effect on this host, in sentences for its operator.
    pub fn doubts(&self, sysfs: &dyn Sysfs) -> Result<Vec<String>, Error> {
        if !self.mdev.is_enabled() {
            return Ok(Vec::new());
        }
        let parents = parents(sysfs)?;
        let mut doubts = Vec::new();
        for mdev_type in self.mdev.types() {
            if !parents.iter().any(|parent| parent.available(sysfs, mdev_type).is_some()) {
                doubts.push(format!(
                    "[devices] enabled_mdev_types: no device of this host offers {mdev_type}"
                ));
            }
        }
        for address in self.mdev.addresses() {
            let mdev_type = self.mdev.type_of(address).unwrap_or_default();
            match parents.iter().find(|parent| parent.address == address) {
                None => doubts.push(format!(
                    "The PCI address {address} was invalid for getting the related mdev type: it is \
                     no mdev-capable device of this host"
                )),
                Some(parent) if parent.available(sysfs, mdev_type).is_none() => {
                    doubts.push(format!(
                        "[mdev_{mdev_type}] device_addresses: {address} does not offer {mdev_type}"
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(doubts)
    }

    fn mdev_devices(
        &self,
        sysfs: &dyn Sysfs,
        is_ours: &dyn Fn(Uuid) -> bool,
    ) -> Result<Vec<Device>, Error> {
        let existing = mdevs(sysfs)?;
        let mut found = Vec::new();
        for parent in parents(sysfs)? {
            let Some(mdev_type) = self.mdev.type_of(&parent.address).map(str::to_owned) else {
                continue;
            };
            let Some(available) = parent.available(sysfs, &mdev_type) else {
                tracing::debug!(address = %parent.address, %mdev_type, "the device does not offer its configured mdev type");
                continue;
            };
            let ours = count_ours(&existing, &parent.address, &mdev_type, is_ours);
            found.push(Found { parent, mdev_type, ours, available });
        }
        self.cap(&mut found);
        found.retain(|found| found.ours + found.available > 0);
        Ok(found.iter().map(|found| self.mdev_device(sysfs, found)).collect())
    }

    /// Lowers the room of types with `max_instances` until their sum fits, in address order. What
    /// exists already is never capped: it is in use.
    fn cap(&self, found: &mut [Found]) {
        let mut left: BTreeMap<String, u32> = BTreeMap::new();
        for one in found.iter() {
            if let Some(most) = self.mdev.max_instances(&one.mdev_type) {
                let room = left.entry(one.mdev_type.clone()).or_insert(most);
                *room = room.saturating_sub(one.ours);
            }
        }
        for one in found {
            if let Some(room) = left.get_mut(&one.mdev_type) {
                one.available = one.available.min(*room);
                *room -= one.available;
            }
        }
    }

    fn mdev_device(&self, sysfs: &dyn Sysfs, found: &Found) -> Device {
        let Found { parent, mdev_type, ours, available } = found;
        let function = PciFunction::read(sysfs, &parent.address);
        let kind = match function.as_ref().map(PciFunction::kind) {
            Some(DeviceKind::Gpu) => DeviceKind::Gpu,
            _ => DeviceKind::Mdev,
        };
        let type_name = parent.attribute(sysfs, mdev_type, "name").unwrap_or_default();
        let virtual_driver = || parent.address.split('_').next().unwrap_or_default().to_owned();
        Device {
            address: parent.address.clone(),
            kind,
            vendor_id: function.as_ref().map_or_else(String::new, |f| f.vendor_id.clone()),
            product_id: function.as_ref().map_or_else(String::new, |f| f.product_id.clone()),
            model: String::new(),
            numa_node: function.as_ref().map_or(-1, |f| f.numa_node),
            health: Health::Healthy,
            deployables: vec![Deployable {
                name: device_name(&parent.address),
                resource_class: self.mdev.class_of(mdev_type).to_owned(),
                traits: traits(mdev_type, &type_name, function.as_ref()),
                driver: function.map_or_else(virtual_driver, |f| f.driver),
                facts: BTreeMap::new(),
                slots: vec![HandleSlot::Mdev {
                    mdev_type: mdev_type.clone(),
                    count: ours + available,
                }],
            }],
        }
    }
}

fn count_ours(
    existing: &[Mdev],
    parent: &str,
    mdev_type: &str,
    is_ours: &dyn Fn(Uuid) -> bool,
) -> u32 {
    let mut ours = 0;
    for mdev in existing.iter().filter(|mdev| mdev.parent == parent) {
        if is_ours(mdev.uuid) {
            ours += u32::from(mdev.mdev_type == mdev_type);
        } else {
            tracing::debug!(uuid = %mdev.uuid, %parent, "a mediated device that is not ours takes room");
        }
    }
    ours
}

/// The type's own trait (`CUSTOM_NVIDIA_35`), and for NVIDIA the one that Cyborg gives
/// (`CUSTOM_NVIDIA_13BD_M10_0B`, product id and second word of the type's name).
fn traits(mdev_type: &str, type_name: &str, function: Option<&PciFunction>) -> Vec<String> {
    let mut traits = vec![custom(mdev_type)];
    if let Some(function) = function.filter(|function| function.vendor_id == "10de")
        && let Some(word) = type_name.split_whitespace().nth(1)
    {
        traits.push(custom(&format!("nvidia_{}_{word}", function.product_id)));
    }
    traits
}

fn custom(text: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("CUSTOM_{}", text.chars().map(letter).collect::<String>())
}

#[cfg(test)]
#[path = "discovery_tests.rs"]
mod tests;
