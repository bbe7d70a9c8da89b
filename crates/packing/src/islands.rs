//! Islands: devices of a host that are all connected to each other by a fast link. Chooses the devices that a request
//! takes so that as many islands as possible stay whole.
//!
//! It must never decide whether a request fits: the requirement of an island is expressed
//! elsewhere.

use std::collections::{BTreeMap, HashMap};

use crate::state::{Device, WHOLE};

/// If the devices of a request are not all in one island, each of them costs as much as this many devices outside whole
/// islands.
pub const SPLIT_COST: u32 = 2;

/// Sorts the devices of a host, and renumbers its islands, so that equal hosts have equal lists. The devices with the
/// greatest remainders come first.
pub(crate) fn normalize(devices: &mut [Device]) {
    let order = |one: &Device| (std::cmp::Reverse(one.free), one.others, one.island);
    if devices.iter().any(|one| one.island.is_some()) {
        let mut members: BTreeMap<u16, Vec<_>> = BTreeMap::new();
        for device in devices.iter() {
            if let Some(island) = device.island {
                members
                    .entry(island)
                    .or_default()
                    .push((std::cmp::Reverse(device.free), device.others));
            }
        }
        let mut members: Vec<_> = members.into_iter().filter(|(_, all)| all.len() > 1).collect();
        members.iter_mut().for_each(|(_, all)| all.sort_unstable());
        members.sort_by(|a, b| a.1.cmp(&b.1));
        let numbers: HashMap<u16, u16> =
            members.into_iter().zip(1..).map(|((island, _), number)| (island, number)).collect();
        for device in devices.iter_mut() {
            device.island = device.island.and_then(|island| numbers.get(&island).copied());
        }
    }
    devices.sort_unstable_by_key(order);
}

/// An island.
#[derive(Debug, Clone, Copy, Default)]
struct Island {
    devices: u32,
    /// Free thousandths.
    free: u32,
}

impl Island {
    fn is_whole(self) -> bool {
        self.free >= self.devices * u32::from(WHOLE)
    }
}

/// The islands of a host.
#[derive(Debug)]
pub(crate) struct Islands<'a> {
    devices: &'a [Device],
    /// The islands by number.
    islands: BTreeMap<u16, Island>,
}

impl<'a> Islands<'a> {
    /// The islands of devices in the normal form.
    pub(crate) fn of(devices: &'a [Device]) -> Self {
        let mut islands: BTreeMap<u16, Island> = BTreeMap::new();
        for device in devices {
            if let Some(number) = device.island {
                let island = islands.entry(number).or_default();
                island.devices += 1;
                island.free += u32::from(device.free);
            }
        }
        Self { devices, islands }
    }

    /// The thousandths in whole islands.
    pub(crate) fn whole(&self) -> u32 {
        self.islands.values().filter(|one| one.is_whole()).map(|one| one.free).sum()
    }

    /// The position of the device with the smallest sufficient remainder for a share.
    pub(crate) fn tightest(&self, share: u16) -> Option<usize> {
        let fitting = (0..self.devices.len()).filter(|at| self.devices[*at].free >= share);
        fitting.min_by_key(|at| {
            (self.devices[*at].free, self.devices[*at].others, self.cost(&[*at], share))
        })
    }

    /// The positions of the devices with this remainder from which a request takes one share each. `None` if there are
    /// too few.
    pub(crate) fn choose(&self, count: usize, remainder: u16, share: u16) -> Option<Vec<usize>> {
        let with_it = |at: &usize| self.devices[*at].free == remainder;
        let eligible: Vec<usize> = (0..self.devices.len()).filter(with_it).collect();
        if eligible.len() < count {
            return None;
        }
        if self.islands.is_empty() {
            return Some(eligible.into_iter().take(count).collect());
        }
        let mut sets: Vec<Vec<usize>> = match count {
            1 => eligible.iter().map(|at| vec![*at]).collect(),
            _ => self.in_one_island(&eligible, count),
        };
        if count > 1 {
            sets.push(self.across(&eligible, count));
        }
        sets.into_iter().min_by_key(|taken| {
            let others: u32 = taken.iter().map(|at| u32::from(self.devices[*at].others)).sum();
            (others, self.cost(taken, share))
        })
    }

    /// True if these devices are not all in one island.
    pub(crate) fn are_split(&self, taken: &[usize]) -> bool {
        let island = |at: &usize| self.devices[*at].island;
        let Some((first, others)) = taken.split_first() else { return false };
        let is_elsewhere = |at: &usize| island(at).is_none() || island(at) != island(first);
        others.iter().any(is_elsewhere)
    }

    fn in_one_island(&self, eligible: &[usize], count: usize) -> Vec<Vec<usize>> {
        let mut members: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for at in eligible {
            if let Some(island) = self.devices[*at].island {
                members.entry(island).or_default().push(*at);
            }
        }
        let large = members.into_values().filter(|all| all.len() >= count);
        large.map(|all| all.into_iter().take(count).collect()).collect()
    }

    /// Takes devices outside whole islands first, then entire islands, then a part of the smallest remaining island.
    fn across(&self, eligible: &[usize], count: usize) -> Vec<usize> {
        let mut whole: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        let mut taken: Vec<usize> = Vec::new();
        for at in eligible {
            match self.devices[*at].island.filter(|island| self.is_whole(*island)) {
                Some(island) => whole.entry(island).or_default().push(*at),
                None => taken.push(*at),
            }
        }
        // Devices whose islands have the least free capacity come first.
        taken.sort_by_key(|at| {
            let island = self.devices[*at].island.and_then(|island| self.islands.get(&island));
            (self.devices[*at].others, island.map_or(0, |island| island.free))
        });
        taken.truncate(count);
        let mut whole: Vec<Vec<usize>> = whole.into_values().collect();
        whole.sort_by_key(Vec::len);
        while taken.len() < count {
            let missing = count - taken.len();
            let entirely = whole.iter().rposition(|all| all.len() <= missing).unwrap_or(0);
            if entirely >= whole.len() {
                break;
            }
            taken.extend(whole.remove(entirely).into_iter().take(missing));
        }
        taken
    }

    fn is_whole(&self, island: u16) -> bool {
        self.islands.get(&island).is_some_and(|one| one.is_whole())
    }

    /// The growth of the free thousandths outside whole islands, including the cost of a split, and the free
    /// thousandths that remain in the affected islands. Less is better.
    fn cost(&self, taken: &[usize], share: u16) -> (i64, i64) {
        let share = i64::from(share);
        let mut shares: BTreeMap<Option<u16>, i64> = BTreeMap::new();
        for at in taken {
            *shares.entry(self.devices[*at].island).or_default() += share;
        }
        let (mut growth, mut left) = (0, 0);
        for (island, shares) in shares {
            let island = island.and_then(|number| self.islands.get(&number));
            let beside = island.map_or(0, |one| i64::from(one.free) - shares);
            left += beside;
            growth += if island.is_some_and(|one| one.is_whole()) { beside } else { -shares };
        }
        if self.are_split(taken) {
            growth +=
                i64::from(SPLIT_COST) * share * i64::try_from(taken.len()).unwrap_or(i64::MAX);
        }
        (growth, left)
    }
}
