//! Devices that topology files name one by one: PCI functions, and the fake card for tests.
//!
//! Owns how a named function becomes a deployable: its virtual functions if it has any, else itself.
//! The fake card is not on any bus; it has the shape of Cyborg's fake driver, so that tests written
//! for that find it.

use std::collections::BTreeMap;

use kilonova_node_api::{Deployable, Device, DeviceKind, HandleSlot, Health};

use crate::PciAddress;
use crate::harvest::{Harvest, Named, Offer, Trouble};
use crate::kinds::{Host, parts_of};

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
    pub(crate) fn find(&self, host: Host<'_>, harvest: &mut Harvest) {
        let place = PciAddress::parse(&self.address);
        let Some(card) = place.and_then(|place| host.bus.get(place)) else {
            if !harvest.troubles.iter().any(|trouble| trouble.address == self.address) {
                let reason = "it is configured and not on this host".to_owned();
                harvest.troubles.push(Trouble::note(&self.address, reason));
            }
            return;
        };
        let mut slots = Vec::new();
        for part in parts_of(host.bus, card) {
            if harvest.claim(&part.address, "its resource class") {
                slots.push(HandleSlot::Pci { address: part.address.clone() });
            }
        }
        if slots.is_empty() {
            return;
        }
        harvest.offers.push(Offer {
            device: self.address.clone(),
            kind: card.function.kind(),
            named: Named::So(self.address.clone()),
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
    /// The card of upstream's fake driver: sixteen handles on bus 0c.
    pub fn upstream() -> Self {
        Self {
            address: "0000:0c:00.0".to_owned(),
            name: "FakeDevice".to_owned(),
            kind: DeviceKind::Fpga,
            resource_class: "FPGA".to_owned(),
            traits: vec!["CUSTOM_FAKE_DEVICE".to_owned()],
            handles: (0..16).map(|n| format!("0000:0c:{:02x}.{}", n / 8, n % 8)).collect(),
        }
    }

    pub(crate) fn find(&self, harvest: &mut Harvest) {
        if !harvest.claim(&self.address, "a fake card") {
            return;
        }
        let handle = |address: &String| HandleSlot::TestPci { address: address.clone() };
        harvest.ready.push(Device {
            address: self.address.clone(),
            card: None,
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
