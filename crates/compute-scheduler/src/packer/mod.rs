//! Ranks all hosts for a request by the cost of their states.
//!
//! The packer mirrors the provider snapshot: each host with its free CPU, memory and devices,
//! grouped by equal state (`kilonova-packing`). It copies only the trees that changed since its
//! last use, so that the cost of a decision grows with the number of distinct states, not of hosts.
//! It only orders hosts and never decides whether a request fits: the engine finds the candidate on
//! each host, and the filters check it.

mod demand;
mod kinds;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kilonova_engine::{Candidate, Query, Snapshot, TreeView};
use kilonova_ids::ProviderId;
use kilonova_packing::{Cost, Demand, Fleet, Model, Scorer, Shape, WHOLE, Weights};

pub use demand::Request;
pub use kinds::is_device;
pub(crate) use kinds::kind_traits;
use kinds::{Cards, Kinds, free_of};

/// The fraction by which the demand or the number of devices must change before the scores are
/// recomputed.
const GROWTH: f64 = 0.125;

/// Maximum number of kinds of requests counted between two writes to the database.
const MAX_PENDING: usize = 512;

/// A host to try.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Preference {
    /// The root of its tree.
    pub(crate) root: ProviderId,
    /// The score of its state; greater is better.
    pub(crate) score: f64,
    /// Free thousandths of the device from which to take a share; `None` if any device will do.
    pub(crate) remainder: Option<u16>,
}

/// The hosts by state, and the learned demand; see the module documentation. Clones share both.
#[derive(Debug, Clone, Default)]
pub struct Packer(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    fleet: Fleet<Cost>,
    /// The snapshot that `fleet` mirrors.
    last_world: Snapshot,
    kinds: Kinds,
    /// The entries of each host: one for each kind of its devices, or one without devices.
    entries: HashMap<ProviderId, Vec<u32>>,
    /// The host of each entry.
    roots: Vec<ProviderId>,
    vacant: Vec<u32>,
    /// Number of devices of each kind.
    supply: HashMap<Model, u32>,
    /// The demand in the database, as it was last read.
    learned: HashMap<Request, f64>,
    /// The requests counted since then.
    pending: HashMap<Request, f64>,
    scored: Scored,
}

/// The input of the current scores.
#[derive(Debug, Default, PartialEq)]
struct Scored {
    demand: f64,
    devices: u32,
    kinds: usize,
}

impl Default for State {
    fn default() -> Self {
        let cost = Cost { profile: Demand::default().profile(&[]), weights: Weights::default() };
        Self {
            fleet: Fleet::new(cost),
            last_world: Snapshot::default(),
            kinds: Kinds::default(),
            entries: HashMap::new(),
            roots: Vec::new(),
            vacant: Vec::new(),
            supply: HashMap::new(),
            learned: HashMap::new(),
            pending: HashMap::new(),
            scored: Scored::default(),
        }
    }
}

impl Packer {
    /// Up to `most` hosts for a request, best first, without the first `skipped` ones. The seed of
    /// the query chooses among hosts in the same state. `None` if the request cannot be ranked,
    /// because no host has such a device.
    pub(crate) fn order(
        &self,
        world: &Snapshot,
        query: &Query,
        weights: Weights,
        skipped: usize,
        most: usize,
    ) -> Option<Vec<Preference>> {
        let mut state = self.lock();
        state.copy_changes(world);
        state.rescore(weights);
        let shape = state.kinds.shape(&Request::of(query))?;
        Some(state.order(&shape, query.seed, skipped, most))
    }

    /// The cost of the state of a host, in devices.
    pub(crate) fn cost(&self, world: &Snapshot, root: ProviderId, weights: Weights) -> f64 {
        let mut state = self.lock();
        state.rescore(weights);
        let State { fleet, kinds, .. } = &mut *state;
        let hosts = world.tree(root).map(|tree| kinds.hosts(&tree)).unwrap_or_default();
        hosts.iter().map(|host| fleet.scorer().of(host)).sum()
    }

    /// The score of the change that the servers of a query cause on a host; greater is better.
    pub(crate) fn rate(
        &self,
        before: &Snapshot,
        after: &Snapshot,
        root: ProviderId,
        query: &Query,
        weights: Weights,
    ) -> f64 {
        let mut state = self.lock();
        state.rescore(weights);
        let State { fleet, kinds, .. } = &mut *state;
        let Some(shape) = kinds.shape(&Request::of(query)) else { return 0.0 };
        let (Some(before), Some(after)) = (before.tree(root), after.tree(root)) else { return 0.0 };
        let changes = kinds.hosts(&before).into_iter().zip(kinds.hosts(&after));
        let of_kind =
            changes.filter(|(host, _)| !shape.is_accelerated() || shape.models.accepts(host.model));
        of_kind.map(|(before, after)| fleet.scorer().score(&before, &after, &shape)).sum()
    }

    /// A separate packer that mirrors `world` and has the same demand, for a search on many scratch
    /// copies of the world. Such a search would keep requests waiting for the lock of this packer.
    #[must_use]
    pub fn detached_copy(&self, world: &Snapshot) -> Self {
        let (learned, pending) = {
            let state = self.lock();
            (state.learned.clone(), state.pending.clone())
        };
        let mut state = State { learned, pending, ..State::default() };
        state.copy_changes(world);
        Self(Arc::new(Mutex::new(state)))
    }

    /// Counts the servers of a request, whether placed or refused.
    pub fn record(&self, query: &Query, servers: usize) {
        let request = Request { memory_mb: 0, ..Request::of(query) };
        let mut state = self.lock();
        if state.pending.len() < MAX_PENDING || state.pending.contains_key(&request) {
            *state.pending.entry(request).or_default() += servers as f64;
        }
    }

    /// Takes the requests counted since the last call, to write them to the database.
    pub fn take_pending(&self) -> Vec<(Request, f64)> {
        self.lock().pending.drain().collect()
    }

    /// Returns requests that could not be written.
    pub fn return_pending(&self, pending: impl IntoIterator<Item = (Request, f64)>) {
        let mut state = self.lock();
        for (request, weight) in pending {
            *state.pending.entry(request).or_default() += weight;
        }
    }

    /// Replaces the demand with that in the database.
    pub fn set_demand(&self, demand: impl IntoIterator<Item = (Request, f64)>) {
        let (mut state, demand) = (self.lock(), demand.into_iter().collect());
        if state.learned != demand {
            state.learned = demand;
            state.scored = Scored::default();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Copies the trees that differ from those of the last snapshot.
    fn copy_changes(&mut self, world: &Snapshot) {
        let changed: BTreeSet<ProviderId> = world.changed_since(&self.last_world).collect();
        for root in changed {
            self.update_tree(world, root);
        }
        self.last_world = world.clone();
    }

    fn update_tree(&mut self, world: &Snapshot, root: ProviderId) {
        let hosts = world.tree(root).map(|tree| self.kinds.hosts(&tree)).unwrap_or_default();
        let mut numbers = self.entries.remove(&root).unwrap_or_default();
        while numbers.len() > hosts.len() {
            let Some(number) = numbers.pop() else { break };
            self.remove_supply(number);
            self.fleet.remove(number);
            self.vacant.push(number);
        }
        while numbers.len() < hosts.len() {
            numbers.push(self.new_entry(root));
        }
        for (number, host) in numbers.iter().zip(hosts) {
            self.remove_supply(*number);
            *self.supply.entry(host.model).or_default() += host.devices();
            self.fleet.set(*number, host);
        }
        if !numbers.is_empty() {
            self.entries.insert(root, numbers);
        }
    }

    /// Removes the devices of an entry from the supply.
    fn remove_supply(&mut self, number: u32) {
        if let Some(before) = self.fleet.host(number) {
            let devices = self.supply.entry(before.model).or_default();
            *devices = devices.saturating_sub(before.devices());
        }
    }

    fn new_entry(&mut self, root: ProviderId) -> u32 {
        if let Some(number) = self.vacant.pop() {
            self.roots[number as usize] = root;
            return number;
        }
        self.roots.push(root);
        u32::try_from(self.roots.len() - 1).unwrap_or(u32::MAX)
    }

    /// Replaces the scores if the weights or the kinds changed, or if the number of devices or the
    /// demand changed by more than [`GROWTH`].
    fn rescore(&mut self, weights: Weights) {
        let demand = self.learned.values().chain(self.pending.values()).sum::<f64>();
        let devices = self.supply.values().sum();
        let now = Scored { demand, devices, kinds: self.kinds.len() };
        let is_near = |now: f64, then: f64| (now - then).abs() <= GROWTH * then;
        let is_same = self.fleet.scorer().weights == weights
            && now.kinds == self.scored.kinds
            && is_near(now.demand, self.scored.demand)
            && is_near(f64::from(now.devices), f64::from(self.scored.devices));
        if is_same {
            return;
        }
        let mut demand = Demand::default();
        for (request, weight) in self.learned.iter().chain(&self.pending) {
            if let Some(shape) = self.kinds.shape(request) {
                demand.record(shape, *weight);
            }
        }
        let mut supply: Vec<(Model, u32)> =
            self.supply.iter().map(|(model, devices)| (*model, *devices)).collect();
        supply.sort_unstable();
        self.fleet.set_scorer(Cost { profile: demand.profile(&supply), weights });
        self.scored = now;
    }

    fn order(&mut self, shape: &Shape, seed: u64, skipped: usize, most: usize) -> Vec<Preference> {
        let Self { fleet, roots, .. } = self;
        let pivot = u32::try_from(seed % roots.len().max(1) as u64).unwrap_or(0);
        let gives_share = shape.is_accelerated() && shape.share < WHOLE;
        let preferences = fleet.rank(shape).flat_map(|place| {
            let in_turn = place.hosts.range(pivot..).chain(place.hosts.range(..pivot));
            in_turn.map(move |number| (*number, place.score, place.remainder))
        });
        preferences
            .skip(skipped)
            .take(most)
            .filter_map(|(number, score, remainder)| {
                let root = *roots.get(number as usize)?;
                Some(Preference { root, score, remainder: remainder.filter(|_| gives_share) })
            })
            .collect()
    }
}

/// The free parts of the devices of a host, for its candidates.
pub(crate) struct Remainders<'a> {
    tree: Option<TreeView<'a>>,
    cards: Cards<'a>,
}

impl<'a> Remainders<'a> {
    pub(crate) fn of_host(world: &'a Snapshot, root: ProviderId) -> Self {
        let tree = world.tree(root);
        Self { tree, cards: tree.as_ref().map(Cards::of).unwrap_or_default() }
    }

    /// The free thousandths of the device from which a candidate takes a share, and those of its
    /// card that requests for other types could use. `None` if the candidate takes no share.
    pub(crate) fn of(&self, candidate: &Candidate) -> Option<(u16, u16)> {
        let (provider, class, _) = candidate
            .allocations
            .iter()
            .find(|(id, class, _)| *id != candidate.root && is_device(class))?;
        let node = self.tree?.nodes().find(|node| node.id() == *provider)?;
        let inventory = node.inventories().find(|(known, _)| *known == class)?.1;
        Some((free_of(&inventory), self.cards.others(node.name(), &inventory)))
    }
}

#[cfg(test)]
mod tests;
