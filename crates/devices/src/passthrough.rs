//! Devices named in topology files: PCI functions, and the fake device for tests.
//!
//! A named function becomes a deployable with its virtual functions, or with itself if it has none.
//! The fake device is on no bus. It equals the one of Cyborg's fake driver, which upstream's tests
//! expect.

use std::collections::BTreeMap;

use kilonova_ids::ResourceClass;
use kilonova_node_api::{Deployable, Device, DeviceKind, HandleSlot, Health};

use crate::PciAddress;
use crate::collector::{Collector, DeviceProblem, Naming, Offer};
use crate::kinds::{KindInput, parts_of};

/// A PCI function, or its virtual functions, for passthrough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Address of the physical function.
    pub address: String,
    /// `FPGA`, `PGPU` or a custom class.
    pub resource_class: ResourceClass,
    /// Traits of the provider.
    pub traits: Vec<String>,
}

impl Function {
    pub(crate) fn find(&self, host: KindInput<'_>, collector: &mut Collector) {
        let place = PciAddress::parse(&self.address);
        let Some(card) = place.and_then(|place| host.bus.get(place)) else {
            if !collector.problems.iter().any(|problem| problem.address == self.address) {
                let reason = "it is configured but not on this host".to_owned();
                collector.problems.push(DeviceProblem::note(&self.address, reason));
            }
            return;
        };
        let mut slots = Vec::new();
        for part in parts_of(host.bus, card) {
            if collector.claim(&part.address, "its resource class") {
                slots.push(HandleSlot::Pci { address: part.address.clone() });
            }
        }
        if slots.is_empty() {
            return;
        }
        collector.offers.push(Offer {
            device: self.address.clone(),
            kind: card.function.kind(),
            naming: Naming::Fixed(self.address.clone()),
            part: Deployable {
                name: String::new(),
                resource_class: self.resource_class.clone(),
                traits: self.traits.clone(),
                driver: card.function.driver.clone(),
                facts: BTreeMap::new(),
                slots,
            },
        });
    }
}

/// A fake device: guests are bound to its handles but get no device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fake {
    /// Its nominal address.
    pub address: String,
    /// Name of its deployable.
    pub name: String,
    /// Its nominal kind.
    pub kind: DeviceKind,
    /// Resource class.
    pub resource_class: ResourceClass,
    /// Traits of the provider.
    pub traits: Vec<String>,
    /// Addresses of its handles.
    pub handles: Vec<String>,
}

impl Fake {
    /// The device of upstream's fake driver: sixteen handles on bus 0c.
    pub fn upstream() -> Self {
        Self {
            address: "0000:0c:00.0".to_owned(),
            name: "FakeDevice".to_owned(),
            kind: DeviceKind::Fpga,
            resource_class: ResourceClass::verbatim("FPGA"),
            traits: vec!["CUSTOM_FAKE_DEVICE".to_owned()],
            handles: (0..16).map(|n| format!("0000:0c:{:02x}.{}", n / 8, n % 8)).collect(),
        }
    }

    pub(crate) fn find(&self, collector: &mut Collector) {
        if !collector.claim(&self.address, "a fake card") {
            return;
        }
        let handle = |address: &String| HandleSlot::TestPci { address: address.clone() };
        collector.ready.push(Device {
            address: self.address.clone(),
            card: None,
            one_type: false,
            switch: None,
            peers: Vec::new(),
            mig: None,
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
        });
    }
}
