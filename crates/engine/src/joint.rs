//! Places several identical servers at once: finds as many candidates of one query as fit together.
//!
//! Repeatedly taking the first candidate can block servers that another choice would have placed,
//! so this module tries the combinations. Taking a candidate only ever reduces capacity. Therefore
//! every set that fits is a subset of the initial candidates, and it fits if no inventory is
//! overdrawn and no server uses an area that another server has to itself ([`areas`]). Trees that
//! no sharing provider connects are solved one by one.
//!
//! The work is bounded like that of a search: after [`MAX_WASTED_TRIES`] tries the best set so far
//! is returned.

mod areas;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use kilonova_ids::{ProviderId, ResourceClass};

use crate::model::Candidate;
use crate::query::{Query, QueryError};
use crate::search::MAX_WASTED_TRIES;
use crate::snapshot::Snapshot;
use areas::{Area, Areas};

/// Upper bound on the candidates examined.
const MAX_CANDIDATES: usize = 100_000;

impl Snapshot {
    /// Returns candidates that fit together: at most `count`, and at most `per_tree(root)` from
    /// each tree. Candidates that `usable` rejects are left out. The result is as large as possible
    /// unless the tries run out first. The query's limit is ignored.
    ///
    /// # Errors
    /// Returns an error if the query is invalid.
    pub fn pack(
        &self,
        query: &Query,
        count: usize,
        per_tree: impl Fn(ProviderId) -> usize,
        usable: impl Fn(&Candidate) -> bool,
    ) -> Result<Vec<Candidate>, QueryError> {
        let unlimited = Query { limit: None, ..query.clone() };
        let mut trees: Vec<Vec<Candidate>> = Vec::new();
        let mut place: HashMap<ProviderId, usize> = HashMap::new();
        let mut shared = false;
        for candidate in self.search(&unlimited)?.take(MAX_CANDIDATES).filter(usable) {
            shared |= candidate.allocations.iter().any(|(provider, ..)| {
                self.root_of(*provider).is_some_and(|root| root != candidate.root)
            });
            let at = *place.entry(candidate.root).or_insert(trees.len());
            match trees.get_mut(at) {
                Some(tree) => tree.push(candidate),
                None => trees.push(vec![candidate]),
            }
        }
        if shared {
            trees = vec![trees.into_iter().flatten().collect()];
        }
        let mut tries = MAX_WASTED_TRIES;
        let mut packed = Vec::new();
        for candidates in trees {
            let left = count - packed.len();
            if left == 0 {
                break;
            }
            let areas = Areas::of(self, query, &candidates);
            let mut packing = Packing::new(self, &candidates, &areas, left, &per_tree, tries);
            packing.extend(0);
            tries = packing.tries;
            let best = packing.best.into_iter().filter_map(|way| packing.candidate.get(way));
            packed.extend(best.filter_map(|at| candidates.get(*at).cloned()));
        }
        Ok(packed)
    }
}

/// Index of a (provider, class) pair from which candidates take an amount, or of an area with
/// `count` units. A server that has an area to itself takes all its units; a server that only uses
/// the area takes one.
type Stock = usize;

struct Packing {
    /// For each way to place a server: its candidate. A candidate has several ways if it can have any one
    /// of several areas to itself.
    candidate: Vec<usize>,
    /// For each way: the amounts that it takes.
    takes: Vec<Vec<(Stock, i64)>>,
    /// For each way: its tree.
    tree: Vec<usize>,
    /// By stock: the remaining amount.
    room: Vec<i64>,
    /// By tree: how many more servers may be placed on it.
    quota: Vec<usize>,
    /// By class: its stocks, and the total amount of the class that one server takes.
    classes: Vec<(Vec<Stock>, i64)>,
    /// The areas, if each server needs one of them to itself; `None` if a server can be placed
    /// without one.
    areas: Option<Vec<Stock>>,
    count: usize,
    tries: u64,
    picks: Vec<usize>,
    best: Vec<usize>,
    /// States already tried: the first way considered and the amounts left. Two sets of picks
    /// that leave the same amounts are equivalent.
    tried_states: HashSet<(usize, Vec<i64>)>,
}

impl Packing {
    fn new(
        snapshot: &Snapshot,
        candidates: &[Candidate],
        areas: &Areas<'_>,
        count: usize,
        per_tree: &impl Fn(ProviderId) -> usize,
        tries: u64,
    ) -> Self {
        let mut stocks: BTreeMap<(ProviderId, ResourceClass), Stock> = BTreeMap::new();
        let mut roots: HashMap<ProviderId, usize> = HashMap::new();
        let (mut candidate, mut room, mut takes, mut tree, mut quota) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let ways: Vec<Vec<BTreeSet<Area<'_>>>> =
            candidates.iter().map(|candidate| areas.ways(candidate)).collect();
        let mut owned: BTreeMap<Area<'_>, Stock> = BTreeMap::new();
        let all = i64::try_from(count).unwrap_or(i64::MAX);
        for area in ways.iter().flatten().flatten() {
            owned.entry(*area).or_insert_with(|| {
                room.push(all);
                room.len() - 1
            });
        }
        let needs_none = ways.iter().flatten().any(BTreeSet::is_empty);
        for (at, (one, ways)) in candidates.iter().zip(ways).enumerate() {
            let root = *roots.entry(one.root).or_insert_with(|| {
                quota.push(per_tree(one.root));
                quota.len() - 1
            });
            let mut taken = Vec::with_capacity(one.allocations.len());
            for (provider, class, amount) in &one.allocations {
                let stock = *stocks.entry((*provider, class.clone())).or_insert_with(|| {
                    room.push(snapshot.free(*provider, class));
                    room.len() - 1
                });
                taken.push((stock, *amount));
            }
            let used = if owned.is_empty() { BTreeSet::new() } else { areas.used(one) };
            for way in ways {
                let others = used.difference(&way).filter_map(|area| owned.get(area));
                let own = way.iter().filter_map(|area| owned.get(area));
                let of_areas =
                    others.map(|stock| (*stock, 1)).chain(own.map(|stock| (*stock, all)));
                takes.push(taken.iter().copied().chain(of_areas).collect());
                candidate.push(at);
                tree.push(root);
            }
        }
        let mut classes: BTreeMap<&ResourceClass, (Vec<Stock>, i64)> = BTreeMap::new();
        for ((_, class), stock) in &stocks {
            classes.entry(class).or_default().0.push(*stock);
        }
        if let Some(first) = candidates.first() {
            for (_, class, amount) in &first.allocations {
                classes.entry(class).or_default().1 += amount;
            }
        }
        Self {
            candidate,
            takes,
            tree,
            room,
            quota,
            classes: classes.into_values().filter(|(_, amount)| *amount > 0).collect(),
            areas: (!needs_none).then(|| owned.into_values().collect()),
            count,
            tries,
            picks: Vec::new(),
            best: Vec::new(),
            tried_states: HashSet::new(),
        }
    }

    /// Extends the picks by ways whose number is at least `from`. Tries all extensions that could
    /// beat the best set.
    fn extend(&mut self, from: usize) {
        if self.picks.len() > self.best.len() {
            self.best.clone_from(&self.picks);
        }
        if self.is_over() || self.picks.len() + self.at_most() <= self.best.len() {
            return;
        }
        if !self.tried_states.insert((from, self.room.clone())) {
            return;
        }
        for at in from..self.takes.len() {
            if self.is_over() {
                return;
            }
            self.tries -= 1;
            if self.take(at) {
                self.picks.push(at);
                self.extend(at);
                self.picks.pop();
                self.give_back(at);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.best.len() >= self.count || self.tries == 0
    }

    /// Upper bound on the number of further servers.
    fn at_most(&self) -> usize {
        let of_class = |(stocks, amount): &(Vec<Stock>, i64)| {
            let left: i64 = stocks.iter().map(|stock| self.room[*stock]).sum();
            usize::try_from(left / amount).unwrap_or(0)
        };
        let is_free = |stock: &&Stock| {
            usize::try_from(self.room[**stock]).is_ok_and(|room| room >= self.count)
        };
        let areas = self.areas.iter().map(|stocks| stocks.iter().filter(is_free).count());
        self.classes.iter().map(of_class).chain(areas).min().unwrap_or(0)
    }

    fn take(&mut self, at: usize) -> bool {
        let fits = self.takes[at].iter().all(|(stock, amount)| self.room[*stock] >= *amount);
        if !fits || self.quota[self.tree[at]] == 0 {
            return false;
        }
        self.quota[self.tree[at]] -= 1;
        for (stock, amount) in &self.takes[at] {
            self.room[*stock] -= amount;
        }
        true
    }

    fn give_back(&mut self, at: usize) {
        self.quota[self.tree[at]] += 1;
        for (stock, amount) in &self.takes[at] {
            self.room[*stock] += amount;
        }
    }
}
