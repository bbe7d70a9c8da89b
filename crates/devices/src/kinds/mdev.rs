//! Parents of mediated devices: GPUs, virtual functions, and virtual parents such as `mtty`.
//!
//! Counts only capacity for this cloud: foreign mediated devices use capacity but are not
//! counted, as no guest of ours gets one. Where guests decide the type, a type that only guests of ours exclude counts
//! as on the empty card: the controller knows what is excluded.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_node_api::{Deployable, DeviceKind, HandleSlot};
use uuid::Uuid;

use super::KindInput;
use super::kept::{Capacity, kept};
use super::mig;
use crate::collector::{Collector, DeviceProblem, Naming, Offer};
use crate::mdev::{mdevs_and_problems, parents_and_problems};
use crate::traits::of_type;
use crate::{Error, Mdev, MdevConfig, Parent, PciAddress, device_name};

const OPTION: &str = "[devices] enabled_mdev_types";

struct UsableParent {
    parent: Parent,
    /// Its physical function, or itself.
    card: String,
    mdev_type: String,
    /// True if the deployable of this type has the parent's name.
    is_first: bool,
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
    let in_use = InUse::of(&existing, host, is_ours);
    let mut found = Vec::new();
    for parent in parents_and_problems(host.sysfs, &mut collector.problems)? {
        let types = config.types_of(&parent.address);
        let types = match unknown(host, &parent, types) {
            None => types,
            Some(unknown) => {
                let reason = format!(
                    "it keeps its first type: its driver does not say how many {unknown} it can have"
                );
                collector.problems.push(DeviceProblem::note(&parent.address, reason));
                &types[..1]
            }
        };
        let card = card(host, &parent.address);
        if types.len() > 1 {
            collector.one_type.insert(parent.address.clone());
        }
        for (at, mdev_type) in types.iter().enumerate() {
            let available = match parent.room(host.sysfs, mdev_type) {
                Ok(Some(available)) => available,
                Ok(None) => {
                    if config.listed(&parent.address).is_some() {
                        let offered = parent.types(host.sysfs).join(", ");
                        let reason = format!("it does not offer {mdev_type}, only {offered}");
                        collector.problems.push(match types.len() {
                            1 => DeviceProblem::fatal(&parent.address, &reason),
                            _ => DeviceProblem::note(&parent.address, reason),
                        });
                    }
                    continue;
                }
                Err(error) => {
                    collector.problems.push(DeviceProblem::fatal(&parent.address, &error));
                    continue;
                }
            };
            let ours = count_ours(&existing, &parent.address, mdev_type, is_ours);
            let available = match most(host, &parent, mdev_type) {
                Some(most) if types.len() > 1 && in_use.only_excludes(&card, mdev_type) => most,
                _ => available,
            };
            found.push(UsableParent {
                parent: parent.clone(),
                card: card.clone(),
                mdev_type: mdev_type.clone(),
                is_first: at == 0,
                ours,
                available,
            });
        }
    }
    keep(config, host, &mut found, collector);
    cap(config, &mut found);
    let mut claimed = BTreeSet::new();
    for one in found.iter().filter(|one| one.ours + one.available > 0) {
        let address = &one.parent.address;
        if claimed.contains(address) || collector.claim(address, OPTION) {
            claimed.insert(address.clone());
            collector.offers.push(offer(config, host, one));
        }
    }
    Ok(())
}

/// The card of a parent: its physical function, or itself.
fn card(host: KindInput<'_>, parent: &str) -> String {
    host.bus.get_by(parent).map_or_else(|| parent.to_owned(), |one| one.card().to_string())
}

/// The maximum number of devices of a type on an empty parent, if it is known: a virtual function has one, and NVIDIA's
/// driver describes the others (`num_heads=2, …, max_instance=8`).
fn most(host: KindInput<'_>, parent: &Parent, mdev_type: &str) -> Option<u32> {
    if host.bus.get_by(&parent.address).is_some_and(|one| one.physical.is_some()) {
        return Some(1);
    }
    let text = parent.attribute(host.sysfs, mdev_type, "description")?;
    let mut words = text.split([',', ' ', '\n']);
    words.find_map(|word| word.strip_prefix("max_instance="))?.parse().ok()
}

/// If there are several types: the first offered one with an unknown maximum on the empty parent.
fn unknown<'a>(host: KindInput<'_>, parent: &Parent, types: &'a [String]) -> Option<&'a str> {
    let offers = |one: &&String| matches!(parent.room(host.sysfs, one), Ok(Some(_)));
    let unknown = |one: &&String| most(host, parent, one).is_none();
    let mut all = types.iter().filter(|_| types.len() > 1).filter(offers);
    all.find(unknown).map(String::as_str)
}

/// The types in use on each card; `None` for a card with foreign devices.
struct InUse(BTreeMap<String, Option<BTreeSet<String>>>);

impl InUse {
    fn of(existing: &[Mdev], host: KindInput<'_>, is_ours: &dyn Fn(Uuid) -> bool) -> Self {
        let mut cards: BTreeMap<String, Option<BTreeSet<String>>> = BTreeMap::new();
        for mdev in existing {
            let types = cards.entry(card(host, &mdev.parent)).or_insert(Some(BTreeSet::new()));
            if !is_ours(mdev.uuid) {
                *types = None;
            } else if let Some(types) = types {
                types.insert(mdev.mdev_type.clone());
            }
        }
        Self(cards)
    }

    /// True if only guests of one other type exclude a type from a card.
    fn only_excludes(&self, card: &str, mdev_type: &str) -> bool {
        let types = self.0.get(card).and_then(Option::as_ref);
        types.is_some_and(|types| types.len() == 1 && !types.contains(mdev_type))
    }
}

/// Removes the other types of kept cards.
fn keep(
    config: &MdevConfig,
    host: KindInput<'_>,
    found: &mut Vec<UsableParent>,
    collector: &mut Collector,
) {
    let mut capacity = Capacity::new();
    for one in found.iter() {
        let types = capacity.entry(one.card.clone()).or_default();
        let sum = types.entry(one.mdev_type.clone()).or_default();
        *sum = sum.saturating_add(one.ours.saturating_add(one.available));
    }
    let is_theirs = |one: &str| !mig::is_instance_type(config, host, one);
    let kept = kept(config, &capacity, is_theirs, &mut collector.problems);
    found.retain(|one| kept.get(&one.card).is_none_or(|kept| *kept == one.mdev_type));
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
    let UsableParent { parent, mdev_type, is_first, ours, available, .. } = found;
    let name = device_name(&parent.address);
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
        naming: Naming::Fixed(if *is_first { name } else { format!("{name}_{mdev_type}") }),
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
