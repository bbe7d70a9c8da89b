//! What a node reported, checked and flattened into the rows that should be there.
//!
//! Pure: the same report gives the same plan, so a report that changes nothing writes nothing.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_engine::Inventory;
use kilonova_ids::ProviderId;
use kilonova_node_api::{Deployable, Device, HandleSlot};
use kilonova_placement::ledger::ProviderSpec;
use newtype_uuid::GenericUuid;
use uuid::Uuid;

use crate::Error;
use crate::db::handles::HandleKey;

/// Mediated devices that one deployable may claim to hold; more is a broken driver.
const MAX_SLOTS: i64 = 4096;

/// A deployable that should be there.
pub(super) struct Part<'a> {
    pub deployable: &'a Deployable,
    /// Name of the provider: `<host>_<name>`.
    pub name: String,
    /// The uuid that Cyborg gives a provider of this name.
    pub provider: ProviderId,
    /// How many handles of which kind.
    pub slots: BTreeMap<HandleKey, i64>,
}

/// A device that should be there.
pub(super) struct Card<'a> {
    pub device: &'a Device,
    pub parts: Vec<Part<'a>>,
}

impl Card<'_> {
    /// Address of the physical function that it is a part of, or its own.
    pub fn address(&self) -> &str {
        self.device.card.as_deref().unwrap_or(&self.device.address)
    }
}

impl Part<'_> {
    /// The resource class and the traits in the form of attributes.
    pub fn attributes(&self) -> Vec<(String, String)> {
        let traits = self.deployable.traits.iter().enumerate();
        traits
            .map(|(at, name)| (format!("traits{}", at + 1), name.clone()))
            .chain([("rc".to_owned(), self.deployable.resource_class.clone())])
            .chain(self.deployable.facts.clone())
            .collect()
    }

    /// The provider as Placement shall have it, of which so much cannot be given out. Without slots
    /// it has no inventory.
    pub fn provider(&self, withheld: i64) -> ProviderSpec {
        let total: i64 = self.slots.values().sum();
        ProviderSpec {
            id: self.provider,
            name: self.name.clone(),
            inventories: units(&self.deployable.resource_class, total, withheld),
            traits: self.deployable.traits.clone(),
        }
    }
}

/// An inventory of so many units, of which so many cannot be given out.
pub(super) fn units(class: &str, total: i64, withheld: i64) -> Vec<(String, Inventory)> {
    let inventory = Inventory {
        total,
        reserved: withheld.min(total),
        min_unit: 1,
        max_unit: total,
        step_size: 1,
        allocation_ratio: 1.0,
        used: 0,
    };
    if total > 0 { vec![(class.to_owned(), inventory)] } else { Vec::new() }
}

/// Checks a report and lays it out.
pub(super) fn plan<'a>(host: &str, devices: &'a [Device]) -> Result<Vec<Card<'a>>, Error> {
    let wrong = |reason: String| Error::Report { host: host.to_owned(), reason };
    if host.is_empty() {
        return Err(wrong("the host has no name".into()));
    }
    let mut addresses = BTreeSet::new();
    let mut names = BTreeSet::new();
    let mut cards = Vec::new();
    for device in devices {
        if device.address.is_empty() || !addresses.insert(device.address.as_str()) {
            return Err(wrong(format!("two devices have the address {:?}", device.address)));
        }
        let mut parts = Vec::new();
        for deployable in &device.deployables {
            if deployable.name.is_empty() || !names.insert(deployable.name.as_str()) {
                return Err(wrong(format!("two deployables have the name {:?}", deployable.name)));
            }
            if deployable.resource_class.is_empty() {
                return Err(wrong(format!(
                    "deployable {:?} has no resource class",
                    deployable.name
                )));
            }
            let slots = slots(device, deployable);
            if slots.values().sum::<i64>() > MAX_SLOTS {
                let name = &deployable.name;
                return Err(wrong(format!("deployable {name:?} has more than {MAX_SLOTS} slots")));
            }
            let name = format!("{host}_{}", deployable.name);
            let provider =
                ProviderId::from_untyped_uuid(Uuid::new_v3(&Uuid::NAMESPACE_DNS, name.as_bytes()));
            parts.push(Part { deployable, name, provider, slots });
        }
        cards.push(Card { device, parts });
    }
    Ok(cards)
}

fn slots(device: &Device, deployable: &Deployable) -> BTreeMap<HandleKey, i64> {
    let mut slots = BTreeMap::new();
    for slot in &deployable.slots {
        let (attach_type, address, mdev_type, count) = match slot {
            HandleSlot::Mdev { mdev_type, count } => {
                ("MDEV", &device.address, mdev_type.as_str(), i64::from(*count))
            }
            HandleSlot::Pci { address } => ("PCI", address, "", 1),
            HandleSlot::Vfio { address, vgpu_type } => ("VFIO", address, vgpu_type.as_str(), 1),
            HandleSlot::TestPci { address } => ("TEST_PCI", address, "", 1),
        };
        let key = HandleKey {
            attach_type: attach_type.to_owned(),
            address: address.clone(),
            mdev_type: mdev_type.to_owned(),
        };
        let have = slots.entry(key).or_insert(0);
        *have = if attach_type == "MDEV" { *have + count } else { 1 };
    }
    slots
}
