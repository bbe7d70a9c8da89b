//! Places for several servers of one kind at once: as many candidates of one query as fit together.
//!
//! Picking the first candidate again and again can run into a wall that another choice would have
//! avoided. Here the choices are tried: what a candidate takes only ever makes room smaller, so every
//! set that fits is a set of the candidates that there are at first, and it fits when no inventory is
//! overdrawn. Trees that lend nothing to each other are solved one by one.
//!
//! The work is bounded like that of a search: after [`PATIENCE`] tries the best so far is the answer.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use kilonova_ids::ProviderId;

use crate::model::Candidate;
use crate::query::{Query, QueryError};
use crate::search::PATIENCE;
use crate::snapshot::Snapshot;

/// Candidates that are looked at in all.
const LOOKED_AT: usize = 100_000;

impl Snapshot {
    /// Candidates that fit together, `count` at most, from each tree (by its root) `per_tree` at most;
    /// those that `usable` turns down are not among them. As many as there can be, unless that takes too long
    /// to find out. The query's limit does not count.
    ///
    /// # Errors
    /// A query that makes no sense.
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
        let mut lent = false;
        for candidate in self.search(&unlimited)?.take(LOOKED_AT).filter(usable) {
            lent |= candidate.allocations.iter().any(|(provider, ..)| {
                self.root_of(*provider).is_some_and(|root| root != candidate.root)
            });
            let at = *place.entry(candidate.root).or_insert(trees.len());
            match trees.get_mut(at) {
                Some(tree) => tree.push(candidate),
                None => trees.push(vec![candidate]),
            }
        }
        if lent {
            trees = vec![trees.into_iter().flatten().collect()];
        }
        let mut tries = PATIENCE;
        let mut packed = Vec::new();
        for candidates in trees {
            let left = count - packed.len();
            if left == 0 {
                break;
            }
            let mut packing = Packing::new(self, &candidates, left, &per_tree, tries);
            packing.go(0);
            tries = packing.tries;
            packed.extend(packing.best.into_iter().filter_map(|at| candidates.get(at).cloned()));
        }
        Ok(packed)
    }
}

/// A (provider, class) pair that candidates take from.
type Cell = usize;

struct Packing {
    /// What each candidate takes.
    takes: Vec<Vec<(Cell, i64)>>,
    /// The tree of each candidate.
    tree: Vec<usize>,
    /// What is left of each cell.
    room: Vec<i64>,
    /// How many more each tree may have.
    quota: Vec<usize>,
    /// For each class, its cells and what one server takes of it in all.
    classes: Vec<(Vec<Cell>, i64)>,
    count: usize,
    tries: u64,
    picks: Vec<usize>,
    best: Vec<usize>,
    /// What was left when the candidates from a place on were tried: two sets that leave the same
    /// are alike.
    seen: HashSet<(usize, Vec<i64>)>,
}

impl Packing {
    fn new(
        world: &Snapshot,
        candidates: &[Candidate],
        count: usize,
        per_tree: &impl Fn(ProviderId) -> usize,
        tries: u64,
    ) -> Self {
        let mut cells: BTreeMap<(ProviderId, Arc<str>), Cell> = BTreeMap::new();
        let mut roots: HashMap<ProviderId, usize> = HashMap::new();
        let (mut room, mut takes, mut tree, mut quota) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for candidate in candidates {
            tree.push(*roots.entry(candidate.root).or_insert_with(|| {
                quota.push(per_tree(candidate.root));
                quota.len() - 1
            }));
            let mut taken = Vec::with_capacity(candidate.allocations.len());
            for (provider, class, amount) in &candidate.allocations {
                let cell = *cells.entry((*provider, Arc::clone(class))).or_insert_with(|| {
                    room.push(world.free(*provider, class));
                    room.len() - 1
                });
                taken.push((cell, *amount));
            }
            takes.push(taken);
        }
        let mut classes: BTreeMap<&str, (Vec<Cell>, i64)> = BTreeMap::new();
        for ((_, class), cell) in &cells {
            classes.entry(class).or_default().0.push(*cell);
        }
        if let Some(first) = candidates.first() {
            for (_, class, amount) in &first.allocations {
                classes.entry(class).or_default().1 += amount;
            }
        }
        Self {
            takes,
            tree,
            room,
            quota,
            classes: classes.into_values().filter(|(_, amount)| *amount > 0).collect(),
            count,
            tries,
            picks: Vec::new(),
            best: Vec::new(),
            seen: HashSet::new(),
        }
    }

    /// Adds candidates to the picks, none before `from`, in every way that could beat the best.
    fn go(&mut self, from: usize) {
        if self.picks.len() > self.best.len() {
            self.best.clone_from(&self.picks);
        }
        if self.is_over() || self.picks.len() + self.at_most() <= self.best.len() {
            return;
        }
        if !self.seen.insert((from, self.room.clone())) {
            return;
        }
        for at in from..self.takes.len() {
            if self.is_over() {
                return;
            }
            self.tries -= 1;
            if self.take(at) {
                self.picks.push(at);
                self.go(at);
                self.picks.pop();
                self.give_back(at);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.best.len() >= self.count || self.tries == 0
    }

    /// A number of further servers that cannot be passed, whatever is chosen.
    fn at_most(&self) -> usize {
        let of_class = |(cells, amount): &(Vec<Cell>, i64)| {
            let left: i64 = cells.iter().map(|cell| self.room[*cell]).sum();
            usize::try_from(left / amount).unwrap_or(0)
        };
        self.classes.iter().map(of_class).min().unwrap_or(0)
    }

    fn take(&mut self, at: usize) -> bool {
        let fits = self.takes[at].iter().all(|(cell, amount)| self.room[*cell] >= *amount);
        if !fits || self.quota[self.tree[at]] == 0 {
            return false;
        }
        self.quota[self.tree[at]] -= 1;
        for (cell, amount) in &self.takes[at] {
            self.room[*cell] -= amount;
        }
        true
    }

    fn give_back(&mut self, at: usize) {
        self.quota[self.tree[at]] += 1;
        for (cell, amount) in &self.takes[at] {
            self.room[*cell] += amount;
        }
    }
}
