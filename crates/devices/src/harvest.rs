//! What the kinds of devices found, before it becomes the devices that a node registers.
//!
//! Owns that a function is offered once, how the parts of one card come together, and that what is
//! wrong with one device is said of that device and stops no other.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_node_api::{Deployable, Device, DeviceKind, HandleSlot, Health};
use serde::Serialize;

use crate::bus::Bus;
use crate::health::{at_first_sight, worse};
use crate::{PciAddress, Sysfs, Watch};

/// Something that keeps a device from being given to guests.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Trouble {
    /// Address of the device, or of what the options name.
    pub address: String,
    /// Why, for people.
    pub reason: String,
    /// Whether the device is there and is reported as failed.
    pub fatal: bool,
}

impl Trouble {
    pub(crate) fn fatal(address: &str, reason: &dyn std::fmt::Display) -> Self {
        Self { address: address.to_owned(), reason: reason.to_string(), fatal: true }
    }

    pub(crate) fn note(address: &str, reason: String) -> Self {
        Self { address: address.to_owned(), reason, fatal: false }
    }
}

/// What one look at a host found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The devices, by address.
    pub devices: Vec<Device>,
    /// What is wrong, by address.
    pub troubles: Vec<Trouble>,
}

/// How the name of a deployable is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Named {
    /// Like this.
    So(String),
    /// By its card's address, which the first such deployable of a card gets as it is; others get
    /// their class behind it. The card's own, if the card is offered whole, goes first.
    ByCard,
}

/// A deployable of a card.
#[derive(Debug)]
pub(crate) struct Offer {
    /// Address of the device that it is a part of.
    pub device: String,
    pub kind: DeviceKind,
    pub named: Named,
    /// The deployable; its name is made when all are there.
    pub part: Deployable,
}

/// The offers, as they come in.
#[derive(Debug, Default)]
pub(crate) struct Harvest {
    pub offers: Vec<Offer>,
    /// Devices that are on no bus and come as they are.
    pub ready: Vec<Device>,
    pub troubles: Vec<Trouble>,
    /// Functions that are there and that no guest could use, and why.
    pub unusable: BTreeMap<String, String>,
    taken: BTreeMap<String, &'static str>,
}

impl Harvest {
    /// Takes a function for an option that names it; a second option is told.
    pub fn claim(&mut self, address: &str, by: &'static str) -> bool {
        if let Some(first) = self.taken.get(address) {
            let reason =
                format!("it is given to guests by {first}; {by} names it too and is left out");
            self.troubles.push(Trouble::note(address, reason));
            return false;
        }
        self.taken.insert(address.to_owned(), by);
        true
    }

    /// Takes a function for a driver that looks at all functions, unless an option names it.
    pub fn claim_quietly(&mut self, address: &str, by: &'static str) -> bool {
        let free = !self.taken.contains_key(address);
        if free {
            self.taken.insert(address.to_owned(), by);
        }
        free
    }

    /// Puts the parts of each card together.
    pub fn found(mut self, sysfs: &dyn Sysfs, bus: &Bus, watch: Option<&Watch>) -> Found {
        let health = |address: &str| match watch {
            Some(watch) => watch.health(sysfs, address),
            None => at_first_sight(sysfs, address),
        };
        let mut cards: BTreeMap<String, (DeviceKind, Vec<(Named, Deployable)>)> = BTreeMap::new();
        for Offer { device, kind, named, part } in std::mem::take(&mut self.offers) {
            cards.entry(device).or_insert((kind, Vec::new())).1.push((named, part));
        }
        let mut names = BTreeSet::new();
        let mut devices = std::mem::take(&mut self.ready);
        names.extend(
            devices.iter().flat_map(|device| &device.deployables).map(|part| part.name.clone()),
        );
        for (address, (kind, parts)) in cards {
            let mut device = blank(bus, &address, kind);
            device.health = health(&address);
            device.card =
                bus.get_by(&address).and_then(|one| one.physical).map(|card| card.to_string());
            if let Some(card) = &device.card {
                device.health = worse(device.health, health(card));
            }
            device.deployables = name(&address, parts);
            let unusable = self.leave_out_unusable(&mut device.deployables);
            device.health = worse(device.health, unusable);
            device.deployables.retain(|part| {
                let fresh = names.insert(part.name.clone());
                if !fresh {
                    let reason = format!("another device has a part named {}", part.name);
                    self.troubles.push(Trouble::note(&address, reason));
                }
                fresh
            });
            match &device.health {
                Health::Healthy => {}
                Health::Degraded { reason, .. } => {
                    self.troubles.push(Trouble::note(&address, reason.clone()));
                }
                Health::Failed { reason, .. } => {
                    self.troubles.push(Trouble::fatal(&address, reason));
                }
            }
            devices.push(device);
        }
        for trouble in self.troubles.iter().filter(|trouble| trouble.fatal) {
            if !devices.iter().any(|device| device.address == trouble.address) {
                let health = Health::Failed { reason: trouble.reason.clone(), since: None };
                let kind = match PciAddress::parse(&trouble.address) {
                    Some(place) => {
                        bus.get(place).map_or(DeviceKind::Pci, |one| one.function.kind())
                    }
                    None => DeviceKind::Mdev,
                };
                devices.push(Device { health, ..blank(bus, &trouble.address, kind) });
            }
        }
        devices.sort_by(|a, b| a.address.cmp(&b.address));
        self.troubles.sort();
        self.troubles.dedup();
        Found { devices, troubles: self.troubles }
    }

    /// Functions that no guest could use go, and the others of the device stay. Where none is left,
    /// the device has failed and keeps them.
    fn leave_out_unusable(&mut self, parts: &mut [Deployable]) -> Health {
        let unusable = &self.unusable;
        let why = |slot: &HandleSlot| match slot {
            HandleSlot::Pci { address } | HandleSlot::Vfio { address, .. } => {
                unusable.get(address).map(|why| (address.clone(), why.clone()))
            }
            HandleSlot::Mdev { .. } | HandleSlot::TestPci { .. } => None,
        };
        let all: Vec<_> = parts.iter().flat_map(|part| part.slots.iter().filter_map(why)).collect();
        let Some((first, reason)) = all.first().cloned() else { return Health::Healthy };
        let slots: usize = parts.iter().map(|part| part.slots.len()).sum();
        if all.len() == slots {
            return Health::Failed { reason: format!("{first}: {reason}"), since: None };
        }
        for part in parts {
            part.slots.retain(|slot| why(slot).is_none());
        }
        let reason = format!("{} of {slots} functions are left out; {first}: {reason}", all.len());
        Health::Degraded { reason, since: None }
    }
}

fn blank(bus: &Bus, address: &str, kind: DeviceKind) -> Device {
    let function = PciAddress::parse(address).and_then(|place| bus.get(place));
    let function = function.map(|one| &one.function);
    Device {
        address: address.to_owned(),
        card: None,
        kind,
        vendor_id: function.map_or_else(String::new, |one| one.vendor_id.clone()),
        product_id: function.map_or_else(String::new, |one| one.product_id.clone()),
        model: String::new(),
        numa_node: function.map_or(-1, |one| one.numa_node),
        health: Health::Healthy,
        deployables: Vec::new(),
    }
}

fn name(address: &str, parts: Vec<(Named, Deployable)>) -> Vec<Deployable> {
    let mut taken: BTreeSet<String> = parts
        .iter()
        .filter_map(|(named, _)| match named {
            Named::So(name) => Some(name.clone()),
            Named::ByCard => None,
        })
        .collect();
    let mut named_parts = Vec::new();
    for (named, part) in parts {
        let name = match named {
            Named::So(name) => name,
            Named::ByCard => {
                let class = format!("{address}_{}", part.resource_class);
                let further = (2..).map(|number| format!("{class}_{number}"));
                let mut names = [address.to_owned(), class.clone()].into_iter().chain(further);
                let free = names.find(|name| !taken.contains(name)).unwrap_or(class);
                taken.insert(free.clone());
                free
            }
        };
        named_parts.push(Deployable { name, ..part });
    }
    named_parts
}
