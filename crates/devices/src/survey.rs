//! An overview of a host's usable devices and of those that the options offer, for an operator who
//! sets up a host, without a controller.
//!
//! Read-only: it is safe to run on a host in use.

use std::collections::BTreeMap;

use kilonova_node_api::{Device, DeviceKind, HandleSlot};
use serde::Serialize;

use crate::bus::{Bus, OnBus};
use crate::kinds::is_accelerator;
use crate::{
    DeviceProblem, Discovery, Error, MigCard, MigScan, Models, ScanContext, Sysfs, Watch, parents,
    vgpu_state,
};

/// A card that can be offered to guests, as a whole or in parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UsableCard {
    /// `0000:84:00.0`, or `mtty_mtty` for a virtual parent.
    pub address: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// Four hex digits, empty for a virtual parent.
    pub vendor_id: String,
    /// Four hex digits, empty for a virtual parent.
    pub product_id: String,
    /// Vendor and product in words; empty if they are unknown.
    pub model: String,
    /// Kernel driver, empty if none.
    pub driver: String,
    /// -1 if the kernel reports none.
    pub numa_node: i64,
    /// Number of its current virtual functions.
    pub virtual_functions: usize,
    /// The types that it or its virtual functions support.
    pub types: Vec<UsableType>,
}

/// A type that a card supports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UsableType {
    /// `nvidia-35`, as `[devices] enabled_mdev_types` names it.
    pub id: String,
    /// `GRID M10-0B`.
    pub name: String,
    /// How many more fit now.
    pub available: u32,
}

/// The result of a survey.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Survey {
    /// The usable cards.
    pub usable: Vec<UsableCard>,
    /// The devices that the options offer.
    pub offered: Vec<Device>,
    /// The problems.
    pub problems: Vec<DeviceProblem>,
}

/// Surveys a host with these cards in MIG mode.
pub fn survey(
    sysfs: &dyn Sysfs,
    discovery: &Discovery,
    cards: &[MigCard],
) -> Result<Survey, Error> {
    let watch = Watch::open(&discovery.health, None, "");
    let listened = watch.listen();
    let mig = Some(MigScan { cards, is_ours: &|_| false });
    let context = ScanContext { watch: Some(&watch), mig, ..ScanContext::default() };
    let found = discovery.scan_with(sysfs, &|_| false, context)?;
    let mut problems = found.problems;
    if let (Err(error), Some(log)) = (listened, &discovery.health.kernel_log) {
        problems.push(DeviceProblem::note(&log.display().to_string(), error.to_string()));
    }
    let bus = Bus::read(sysfs, &mut problems)?;
    let mut types: BTreeMap<String, Vec<UsableType>> = BTreeMap::new();
    let mut usable = Vec::new();
    for parent in parents(sysfs)? {
        let offered = parent.types(sysfs).into_iter().map(|id| UsableType {
            name: parent.attribute(sysfs, &id, "name").unwrap_or_default(),
            available: parent.available(sysfs, &id).unwrap_or(0),
            id,
        });
        match bus.all().find(|one| one.address == parent.address) {
            Some(on_bus) => merge(types.entry(on_bus.card().to_string()).or_default(), offered),
            None => usable.push(virtual_parent(parent.address.clone(), offered.collect())),
        }
    }
    for on_bus in bus.all() {
        if let Ok(Some(state)) = vgpu_state(sysfs, &on_bus.address) {
            let offered = state.creatable.into_iter();
            let offered =
                offered.map(|one| UsableType { id: one.id, name: one.name, available: 1 });
            merge(types.entry(on_bus.card().to_string()).or_default(), offered);
        }
    }
    for card in bus.all().filter(|one| one.physical.is_none()) {
        let types = types.remove(&card.address).unwrap_or_default();
        let virtual_functions = bus.virtuals(card.place).count();
        let offered = found.devices.iter().any(|device| device.address == card.address);
        if offered || virtual_functions > 0 || !types.is_empty() || is_accelerator(&card.function) {
            usable.push(of_card(card, &discovery.models, virtual_functions, types));
        }
    }
    problems.sort();
    problems.dedup();
    Ok(Survey { usable, offered: found.devices, problems })
}

fn merge(into: &mut Vec<UsableType>, types: impl Iterator<Item = UsableType>) {
    for one in types {
        match into.iter_mut().find(|known| known.id == one.id) {
            Some(known) => known.available += one.available,
            None => into.push(one),
        }
    }
}

fn of_card(
    card: &OnBus,
    models: &Models,
    virtual_functions: usize,
    types: Vec<UsableType>,
) -> UsableCard {
    let function = &card.function;
    UsableCard {
        address: card.address.clone(),
        kind: function.kind(),
        vendor_id: function.vendor_id.clone(),
        product_id: function.product_id.clone(),
        model: models.of(&function.vendor_id, &function.product_id),
        driver: function.driver.clone(),
        numa_node: function.numa_node,
        virtual_functions,
        types,
    }
}

fn virtual_parent(address: String, types: Vec<UsableType>) -> UsableCard {
    UsableCard {
        driver: address.split('_').next().unwrap_or_default().to_owned(),
        address,
        kind: DeviceKind::Mdev,
        vendor_id: String::new(),
        product_id: String::new(),
        model: String::new(),
        numa_node: -1,
        virtual_functions: 0,
        types,
    }
}

impl Survey {
    /// The survey as a table.
    pub fn table(&self) -> String {
        let mut text = String::new();
        if self.usable.is_empty() && self.offered.is_empty() {
            text.push_str("This host has no device that can be offered to guests.\n");
        }
        if !self.usable.is_empty() {
            let mut rows = vec![
                ["ADDRESS", "KIND", "ID", "DRIVER", "NUMA", "VFS", "TYPES", "MODEL"]
                    .map(str::to_owned),
            ];
            rows.extend(self.usable.iter().map(UsableCard::row));
            text.push_str(&aligned(&rows));
        }
        let mut rows = vec![["PROVIDER", "CLASS", "UNITS", "HEALTH", "TRAITS"].map(str::to_owned)];
        for device in &self.offered {
            let health = device.health.as_str();
            rows.extend(device.deployables.iter().map(|part| {
                let units: u32 = part.slots.iter().map(units).sum();
                let class = part.resource_class.to_string();
                let name = format!("<host>_{}", part.name);
                [name, class, units.to_string(), health.to_owned(), part.traits.join(" ")]
            }));
        }
        if rows.len() > 1 {
            text.push_str("\nOffered to guests:\n");
            text.push_str(&aligned(&rows));
        } else if !self.usable.is_empty() {
            text.push_str("\nThe options offer none of them to guests.\n");
        }
        if !self.problems.is_empty() {
            text.push_str("\nProblems:\n");
            for DeviceProblem { address, reason, .. } in &self.problems {
                text.push_str(&format!("{address}: {reason}\n"));
            }
        }
        text
    }
}

impl UsableCard {
    fn row(&self) -> [String; 8] {
        let types: Vec<String> =
            self.types.iter().map(|one| format!("{} ({} free)", one.id, one.available)).collect();
        let ids = if self.vendor_id.is_empty() {
            "-".to_owned()
        } else {
            format!("{}:{}", self.vendor_id, self.product_id)
        };
        let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        [
            self.address.clone(),
            self.kind.as_str().to_owned(),
            ids,
            or_dash(&self.driver),
            self.numa_node.to_string(),
            self.virtual_functions.to_string(),
            or_dash(&types.join(", ")),
            or_dash(&self.model),
        ]
    }
}

fn units(slot: &HandleSlot) -> u32 {
    match slot {
        HandleSlot::Mdev { count, .. } => *count,
        HandleSlot::Pci { .. } | HandleSlot::Vfio { .. } | HandleSlot::TestPci { .. } => 1,
    }
}

fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
#[path = "survey_tests.rs"]
mod tests;
