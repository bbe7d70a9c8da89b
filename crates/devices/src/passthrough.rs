//! Devices that guests get whole: PCI functions, and the fake card for tests.
//!
//! Owns how a configured function becomes a deployable: its virtual functions if it has any, else
//! itself. The fake card is not on any bus; it has the shape of Cyborg's fake driver, so that tests
//! written for that find it.

use std::collections::BTreeMap;

use kilonova_node_api::{Deployable, Device, DeviceKind, HandleSlot, Health};

use crate::{PciFunction, Sysfs, device_name};

/// A PCI function, or the virtual functions of one, to be given to guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Address of the physical function.
    pub address: String,
    /// `FPGA`, `PGPU` or a custom class.
    pub resource_class: String,
    /// Traits of the provider.
    pub traits: Vec<String>,
}

impl Function {
    pub(crate) fn device(&self, sysfs: &dyn Sysfs) -> Option<Device> {
        let Some(function) = PciFunction::read(sysfs, &self.address) else {
            tracing::warn!(address = %self.address, "a configured PCI function is not on this host");
            return None;
        };
        let virtual_functions = virtual_functions(sysfs, &self.address);
        let addresses = if virtual_functions.is_empty() {
            vec![self.address.clone()]
        } else {
            virtual_functions
        };
        Some(Device {
            address: self.address.clone(),
            kind: function.kind(),
            vendor_id: function.vendor_id,
            product_id: function.product_id,
            model: String::new(),
            numa_node: function.numa_node,
            health: Health::Healthy,
            deployables: vec![Deployable {
                name: device_name(&self.address),
                resource_class: self.resource_class.clone(),
                traits: self.traits.clone(),
                driver: function.driver,
                facts: BTreeMap::new(),
                slots: addresses.into_iter().map(|address| HandleSlot::Pci { address }).collect(),
            }],
        })
    }
}

fn virtual_functions(sysfs: &dyn Sysfs, address: &str) -> Vec<String> {
    let mut addresses = Vec::new();
    while let Ok(path) = sysfs.real(&format!("bus/pci/devices/{address}/virtfn{}", addresses.len()))
    {
        addresses.push(path.rsplit('/').next().unwrap_or(&path).to_owned());
    }
    addresses
}

/// A card that exists only on paper; guests are bound to its handles but get no device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fake {
    /// Address it claims to have.
    pub address: String,
    /// Name of its one deployable.
    pub name: String,
    /// Kind it claims to be.
    pub kind: DeviceKind,
    /// Resource class.
    pub resource_class: String,
    /// Traits of the provider.
    pub traits: Vec<String>,
    /// Addresses of its handles.
    pub handles: Vec<String>,
}

impl Fake {
    pub(crate) fn device(&self) -> Device {
        let handle = |address: &String| HandleSlot::TestPci { address: address.clone() };
        Device {
            address: self.address.clone(),
            kind: self.kind,
            vendor_id: "abcd".to_owned(),
            product_id: "abcd".to_owned(),
            model: "miss model info".to_owned(),
            numa_node: -1,
            health: Health::Healthy,
            deployables: vec![Deployable {
                name: self.name.clone(),
                resource_class: self.resource_class.clone(),
                traits: self.traits.clone(),
                driver: "fake".to_owned(),
                facts: BTreeMap::new(),
                slots: self.handles.iter().map(handle).collect(),
            }],
        }
    }
}
