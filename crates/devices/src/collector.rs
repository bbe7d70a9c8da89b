//! Collects the offers of all device kinds and combines them into devices.
//!
//! Guarantees that a function is offered once, and that a problem of one device is reported for that
//! device and affects no other.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_node_api::{Deployable, Device, DeviceKind, HandleSlot, Health, Mig};
use serde::Serialize;

use crate::bus::Bus;
use crate::health::{health_without_memory, worse};
use crate::{Models, PciAddress, Sysfs, Watch};

/// A problem that keeps a device from guests.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct DeviceProblem {
    /// Address of the device, or of the entry in the options.
    pub address: String,
    /// The reason, for the operator.
    pub reason: String,
    /// True if the device exists and is reported as failed.
    pub fatal: bool,
}

impl DeviceProblem {
    pub(crate) fn fatal(address: &str, reason: &dyn std::fmt::Display) -> Self {
        Self { address: address.to_owned(), reason: reason.to_string(), fatal: true }
    }

    pub(crate) fn note(address: &str, reason: String) -> Self {
        Self { address: address.to_owned(), reason, fatal: false }
    }
}

/// The result of a scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The devices, by address.
    pub devices: Vec<Device>,
    /// The problems, by address.
    pub problems: Vec<DeviceProblem>,
}

/// How a deployable gets its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Naming {
    /// This name.
    Fixed(String),
    /// The card's address for the first such deployable of a card, with the class appended for
    /// further ones. The card's own deployable, if the card is offered as a whole, comes first.
    ByCard,
}

/// A deployable offered by a kind.
#[derive(Debug)]
pub(crate) struct Offer {
    /// Address of the device that it belongs to.
    pub device: String,
    pub kind: DeviceKind,
    pub naming: Naming,
    /// The deployable; it is named when all are known.
    pub part: Deployable,
}

/// The offers collected so far.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    pub offers: Vec<Offer>,
    /// Complete devices that are not on a bus.
    pub ready: Vec<Device>,
    pub problems: Vec<DeviceProblem>,
    /// Existing functions that no guest can use, with the reasons.
    pub unusable: BTreeMap<String, String>,
    /// Devices whose cards have vGPUs of one type at a time.
    pub one_type: BTreeSet<String>,
    /// The geometry of cards in MIG mode.
    pub mig: BTreeMap<String, Mig>,
    claimed: BTreeMap<String, &'static str>,
}

impl Collector {
    /// Claims a function for an option. A second claim is reported as a problem.
    pub fn claim(&mut self, address: &str, by: &'static str) -> bool {
        if let Some(first) = self.claimed.get(address) {
            let reason = format!("it is offered by {first}; ignoring {by}, which names it too");
            self.problems.push(DeviceProblem::note(address, reason));
            return false;
        }
        self.claimed.insert(address.to_owned(), by);
        true
    }

    /// Claims a function for a driver that searches all functions, unless an option has claimed it.
    pub fn claim_if_free(&mut self, address: &str, by: &'static str) -> bool {
        let free = !self.claimed.contains_key(address);
        if free {
            self.claimed.insert(address.to_owned(), by);
        }
        free
    }

    /// Combines the parts of each card.
    pub fn found(
        mut self,
        sysfs: &dyn Sysfs,
        (bus, models): (&Bus, &Models),
        watch: Option<&Watch>,
    ) -> Found {
        let health = |address: &str| match watch {
            Some(watch) => watch.health(sysfs, address),
            None => health_without_memory(sysfs, address),
        };
        let mut cards: BTreeMap<String, (DeviceKind, Vec<(Naming, Deployable)>)> = BTreeMap::new();
        for Offer { device, kind, naming, part } in std::mem::take(&mut self.offers) {
            cards.entry(device).or_insert((kind, Vec::new())).1.push((naming, part));
        }
        let mut names = BTreeSet::new();
        let mut devices = std::mem::take(&mut self.ready);
        names.extend(
            devices.iter().flat_map(|device| &device.deployables).map(|part| part.name.clone()),
        );
        for (address, (kind, parts)) in cards {
            let mut device = blank((bus, models), &address, kind);
            device.mig = self.mig.remove(&address);
            device.one_type = self.one_type.contains(&address);
            device.health = health(&address);
            device.card =
                bus.get_by(&address).and_then(|one| one.physical).map(|card| card.to_string());
            if let Some(card) = &device.card {
                device.health = worse(device.health, health(card));
            }
            device.deployables = name(&address, parts);
            let unusable = self.remove_unusable(&mut device.deployables);
            device.health = worse(device.health, unusable);
            device.deployables.retain(|part| {
                let fresh = names.insert(part.name.clone());
                if !fresh {
                    let reason = format!("another device has a deployable named {}", part.name);
                    self.problems.push(DeviceProblem::note(&address, reason));
                }
                fresh
            });
            match &device.health {
                Health::Healthy => {}
                Health::Degraded { reason, .. } => {
                    self.problems.push(DeviceProblem::note(&address, reason.clone()));
                }
                Health::Failed { reason, .. } => {
                    self.problems.push(DeviceProblem::fatal(&address, reason));
                }
            }
            devices.push(device);
        }
        let mut reported: BTreeSet<String> =
            devices.iter().map(|device| device.address.clone()).collect();
        for problem in self.problems.iter().filter(|problem| problem.fatal) {
            if reported.insert(problem.address.clone()) {
                let health = Health::Failed { reason: problem.reason.clone(), since: None };
                let kind = match PciAddress::parse(&problem.address) {
                    Some(place) => {
                        bus.get(place).map_or(DeviceKind::Pci, |one| one.function.kind())
                    }
                    None => DeviceKind::Mdev,
                };
                devices.push(Device { health, ..blank((bus, models), &problem.address, kind) });
            }
        }
        devices.sort_by(|a, b| a.address.cmp(&b.address));
        self.problems.sort();
        self.problems.dedup();
        Found { devices, problems: self.problems }
    }

    /// Removes functions that no guest can use. If none is left, the device is reported as failed
    /// and keeps them.
    fn remove_unusable(&mut self, parts: &mut [Deployable]) -> Health {
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

fn blank((bus, models): (&Bus, &Models), address: &str, kind: DeviceKind) -> Device {
    let function = PciAddress::parse(address).and_then(|place| bus.get(place));
    let function = function.map(|one| &one.function);
    Device {
        address: address.to_owned(),
        card: None,
        one_type: false,
        switch: None,
        peers: Vec::new(),
        mig: None,
        kind,
        vendor_id: function.map_or_else(String::new, |one| one.vendor_id.clone()),
        product_id: function.map_or_else(String::new, |one| one.product_id.clone()),
        model: function.map_or_else(String::new, |one| models.of(&one.vendor_id, &one.product_id)),
        numa_node: function.map_or(-1, |one| one.numa_node),
        health: Health::Healthy,
        deployables: Vec::new(),
    }
}

/// Names the deployables of a card. A generated name is the first free one of the address, the class after it,
/// and the class with a number. Each class continues from its last number, so that the time is linear.
fn name(address: &str, parts: Vec<(Naming, Deployable)>) -> Vec<Deployable> {
    let mut taken: BTreeSet<String> = parts
        .iter()
        .filter_map(|(naming, _)| match naming {
            Naming::Fixed(name) => Some(name.clone()),
            Naming::ByCard => None,
        })
        .collect();
    let mut last: BTreeMap<String, u32> = BTreeMap::new();
    let mut named_parts = Vec::new();
    for (naming, part) in parts {
        let name = match naming {
            Naming::Fixed(name) => name,
            Naming::ByCard => {
                let class = format!("{address}_{}", part.resource_class);
                let number = last.entry(class.clone()).or_insert(0);
                let mut free = numbered(address, &class, *number);
                while !taken.insert(free.clone()) {
                    *number += 1;
                    free = numbered(address, &class, *number);
                }
                free
            }
        };
        named_parts.push(Deployable { name, ..part });
    }
    named_parts
}

fn numbered(address: &str, class: &str, number: u32) -> String {
    match number {
        0 => address.to_owned(),
        1 => class.to_owned(),
        more => format!("{class}_{more}"),
    }
}
