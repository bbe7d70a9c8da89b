//! Parents of mediated devices: GPUs, virtual functions, and virtual parents such as `mtty`.
//!
//! Counts only capacity for this control plane: foreign mediated devices use capacity but are not
//! counted, as no guest of ours gets one.

use std::collections::BTreeMap;

use kilonova_node_api::{Deployable, DeviceKind, HandleSlot};
use uuid::Uuid;

use super::KindInput;
use crate::collector::{Collector, DeviceProblem, Naming, Offer};
use crate::mdev::{mdevs_and_problems, parents_and_problems};
use crate::traits::of_type;
use crate::{Error, Mdev, MdevConfig, Parent, PciAddress, device_name};

const OPTION: &str = "[devices] enabled_mdev_types";

struct UsableParent {
    parent: Parent,
    mdev_type: String,
    ours: u32,
    available: u32,
}

pub(crate) fn find(
    config: &MdevConfig,
    host: KindInput<'_>,
    is_ours: &dyn Fn(Uuid) -> bool,
    collector: &mut Collector,
) -> Result<(), Error> {
    let existing = mdevs_and_problems(host.sysfs, &mut collector.problems)?;
    let mut found = Vec::new();
    for parent in parents_and_problems(host.sysfs, &mut collector.problems)? {
        let Some(mdev_type) = config.type_of(&parent.address).map(str::to_owned) else {
            continue;
        };
        let available = match parent.room(host.sysfs, &mdev_type) {
            Ok(Some(available)) => available,
            Ok(None) => {
                if config.addresses().any(|address| address == parent.address) {
                    let types = parent.types(host.sysfs).join(", ");
                    let reason = format!("it does not offer {mdev_type}, only {types}");
                    collector.problems.push(DeviceProblem::fatal(&parent.address, &reason));
                }
                continue;
            }
            Err(error) => {
                collector.problems.push(DeviceProblem::fatal(&parent.address, &error));
                continue;
            }
        };
        let ours = count_ours(&existing, &parent.address, &mdev_type, is_ours);
        found.push(UsableParent { parent, mdev_type, ours, available });
    }
    cap(config, &mut found);
    for one in found.iter().filter(|one| one.ours + one.available > 0) {
        if collector.claim(&one.parent.address, OPTION) {
            collector.offers.push(offer(config, host, one));
        }
    }
    Ok(())
}

/// Lowers the capacity of types with `max_instances` until the sum fits, in address order. Existing
/// devices are in use and never removed from the count.
fn cap(config: &MdevConfig, found: &mut [UsableParent]) {
    let mut left: BTreeMap<String, u32> = BTreeMap::new();
    for one in found.iter() {
        if let Some(most) = config.max_instances(&one.mdev_type) {
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

fn offer(config: &MdevConfig, host: KindInput<'_>, found: &UsableParent) -> Offer {
    let UsableParent { parent, mdev_type, ours, available } = found;
    let on_bus = PciAddress::parse(&parent.address).and_then(|place| host.bus.get(place));
    let function = on_bus.map(|one| &one.function);
    let type_name = parent.attribute(host.sysfs, mdev_type, "name").unwrap_or_default();
    let virtual_driver = || parent.address.split('_').next().unwrap_or_default().to_owned();
    let (traits, facts) = of_type(mdev_type, &type_name, function);
    Offer {
        device: parent.address.clone(),
        kind: match function.map(|function| function.kind()) {
            Some(DeviceKind::Gpu) => DeviceKind::Gpu,
            _ => DeviceKind::Mdev,
        },
        naming: Naming::Fixed(device_name(&parent.address)),
        part: Deployable {
            name: String::new(),
            resource_class: config.class_of(mdev_type),
            traits,
            driver: function.map_or_else(virtual_driver, |function| function.driver.clone()),
            facts,
            slots: vec![HandleSlot::Mdev { mdev_type: mdev_type.clone(), count: ours + available }],
        },
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
            tracing::debug!(uuid = %mdev.uuid, %parent, "a foreign mediated device uses capacity");
        }
    }
    ours
}
