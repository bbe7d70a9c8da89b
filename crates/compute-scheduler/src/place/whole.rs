//! Keeps GPU islands and PCIe switches whole for servers that need all devices of one.
//!
//! The candidates of a host are ordered by these numbers; less is better:
//!
//! 1. the free devices that the candidate leaves outside of whole islands (counted as in `kilonova-packing`);
//! 2. the switches without a device in use that it breaks;
//! 3. the free devices that it leaves in the islands of the devices that it takes;
//! 4. the free devices that it leaves below their switches.
//!
//! This module only orders candidates; it must never refuse one.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_engine::{Alike, Candidate, NodeView, Query, Snapshot};
use kilonova_ids::{ProviderId, ResourceClass, nearness};
use kilonova_packing::SPLIT_COST;

use crate::packer::is_device;

/// A host's islands and switches that contain at least two devices of the requested classes.
#[derive(Debug, Default)]
pub(super) struct Places {
    islands: Vec<Place>,
    switches: Vec<Place>,
    /// The suffixes of the groups that request devices.
    groups: Vec<String>,
    /// The requested classes of devices.
    classes: Vec<ResourceClass>,
}

/// An island, or the devices below a switch: each provider, and whether all its units are free.
type Place = Vec<(ProviderId, bool)>;

impl Places {
    /// The islands and switches of a host. Empty if the request needs no devices.
    pub(super) fn of(world: &Snapshot, root: ProviderId, query: &Query) -> Self {
        let (groups, classes) = device_groups(query);
        let Some(tree) = world.tree(root).filter(|_| !groups.is_empty()) else {
            return Self::default();
        };
        let mut all: BTreeMap<&str, Place> = BTreeMap::new();
        for node in tree.nodes().filter(|node| node.parent().is_some()) {
            let Some(is_free) = is_free(&node, &classes) else { continue };
            for name in node.traits().filter(|name| nearness::is_place(name)) {
                all.entry(name).or_default().push((node.id(), is_free));
            }
        }
        all.retain(|_, place| place.len() > 1);
        let of = |prefix: &str| {
            let named = all.iter().filter(|(name, _)| name.starts_with(prefix));
            named.map(|(_, place)| place.clone()).collect()
        };
        let (islands, switches) = (of(nearness::GPU_ISLAND), of(nearness::PCIE_SWITCH));
        Self { islands, switches, groups, classes }
    }

    /// True if there are no islands or switches, so that all candidates on the host are equally good.
    pub(super) fn are_none(&self) -> bool {
        self.islands.is_empty() && self.switches.is_empty()
    }

    /// The queries for candidates on the host, in order. If several groups request devices, the first queries require
    /// all devices to be at one place: only a few candidates of each query are examined, and without this condition
    /// none of them may be at one place.
    pub(super) fn queries(&self, query: &Query) -> Vec<Query> {
        let at_one = |prefix: &str| {
            let condition = Alike {
                groups: self.groups.clone(),
                classes: self.classes.clone(),
                prefix: prefix.to_owned(),
                ..Alike::default()
            };
            let mut query = query.clone();
            query.alike.push(condition);
            query
        };
        let mut queries = Vec::new();
        if self.groups.len() > 1 {
            let kinds =
                [(&self.switches, nearness::PCIE_SWITCH), (&self.islands, nearness::GPU_ISLAND)];
            let some = kinds.into_iter().filter(|(places, _)| !places.is_empty());
            queries.extend(some.map(|(_, prefix)| at_one(prefix)));
        }
        queries.push(query.clone());
        queries
    }

    /// The cost of a candidate; less is better.
    pub(super) fn cost(&self, candidate: &Candidate) -> [i64; 4] {
        let taken: BTreeSet<ProviderId> = candidate
            .allocations
            .iter()
            .filter(|(_, class, _)| self.classes.binary_search(class).is_ok())
            .map(|(provider, ..)| *provider)
            .collect();
        let (mut broken, mut left) = (0, [0; 2]);
        for (kind, places) in [&self.islands, &self.switches].into_iter().enumerate() {
            for place in places {
                let effect = effect_on(place, &taken);
                if effect.taken == 0 || effect.taken == place.len() {
                    continue;
                }
                broken += i64::from(kind == 1 && effect.is_whole);
                left[kind] += effect.free;
            }
        }
        [self.outside_whole_islands(&taken), broken, left[0], left[1]]
    }

    /// The increase in the number of free devices outside of whole islands, plus a cost if no island has all of the
    /// taken devices.
    fn outside_whole_islands(&self, taken: &BTreeSet<ProviderId>) -> i64 {
        if self.islands.is_empty() {
            return 0;
        }
        let mut growth = -count(taken.len());
        let mut is_split = taken.len() > 1;
        for place in &self.islands {
            let effect = effect_on(place, taken);
            if effect.taken > 0 && effect.is_whole {
                growth += count(effect.taken) + effect.free;
            }
            is_split &= effect.taken < taken.len();
        }
        growth + if is_split { i64::from(SPLIT_COST) * count(taken.len()) } else { 0 }
    }
}

/// The effect of a candidate on a place.
struct PlaceEffect {
    /// The number of the place's devices that the candidate takes.
    taken: usize,
    /// The number of the place's free devices that the candidate leaves.
    free: i64,
    /// True if all devices of the place are free before the candidate takes any.
    is_whole: bool,
}

fn effect_on(place: &Place, taken: &BTreeSet<ProviderId>) -> PlaceEffect {
    let is_taken = |provider: &ProviderId| taken.contains(provider);
    let rest = place.iter().filter(|(provider, is_free)| *is_free && !is_taken(provider));
    PlaceEffect {
        taken: place.iter().filter(|(provider, _)| is_taken(provider)).count(),
        free: count(rest.count()),
        is_whole: place.iter().all(|(_, is_free)| *is_free),
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// True if all units of a device are free; `None` if it offers none of the classes. A card is not free if units of its
/// other types reduce its capacity.
fn is_free(node: &NodeView<'_>, classes: &[ResourceClass]) -> Option<bool> {
    let mut offered =
        node.inventories().filter(|(class, _)| classes.binary_search(class).is_ok()).peekable();
    offered.peek()?;
    Some(offered.all(|(_, one)| one.used == 0 && one.capacity() >= one.total))
}

/// The suffixes of the groups that request devices, and the classes of the devices.
pub fn device_groups(query: &Query) -> (Vec<String>, Vec<ResourceClass>) {
    let (mut groups, mut classes) = (Vec::new(), Vec::new());
    for group in &query.groups {
        let of_group = group.resources.iter().map(|(class, _)| class).filter(|one| is_device(one));
        let before = classes.len();
        classes.extend(of_group.cloned());
        if classes.len() > before {
            groups.push(group.suffix.clone());
        }
    }
    classes.sort_unstable();
    classes.dedup();
    (groups, classes)
}

#[cfg(test)]
#[path = "whole_tests.rs"]
mod tests;
