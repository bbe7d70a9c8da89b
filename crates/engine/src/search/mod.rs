//! The walk over the trees: breadth-first and lazy, starting at a tree that the seed determines.
//!
//! A tree that yields a candidate is queued behind all other trees. In the first round only its
//! slot is kept, because most searches end there and a thousand unfinished solvers would waste
//! memory; the second round finds the first candidate again. The walk skips trees and whole chunks
//! in which no provider has enough room.
//!
//! The work is bounded: a tree that finds nothing within [`TRIES_PER_TURN`] yields to the others,
//! and after [`MAX_WASTED_TRIES`] wasted tries over all trees the search ends with the candidates
//! it has.

mod alike;
mod plan;
mod reach;
mod refute;
mod solve;
mod symmetry;

use std::collections::{HashSet, VecDeque};

use kilonova_ids::{ProviderId, ResourceClass};

use crate::model::Candidate;
use crate::query::{Query, QueryError};
use crate::snapshot::{CHUNK, Slot, Snapshot};

pub(crate) use plan::{Part, Plan};
use reach::might_fit;
pub(crate) use reach::{AnchorTree, TESTS, Test, root_fits};
pub(crate) use solve::{Relaxed, Solver, Stop};

/// Tries that a tree gets per turn.
pub(crate) const TRIES_PER_TURN: u64 = 4096;
/// Wasted tries after which a search gives up. Only adversarial queries reach this limit, after a
/// second or two.
pub(crate) const MAX_WASTED_TRIES: u64 = 250_000;
/// Tries that finding a candidate may cost without being counted as wasted.
pub(crate) const TRIES_PER_FIND: u64 = 64;

/// The candidates of one query, found on demand. Created by [`Snapshot::search`].
#[derive(Debug)]
pub struct Search<'a> {
    snapshot: &'a Snapshot,
    query: &'a Query,
    plan: Plan,
    walk: Walk,
    waiting: VecDeque<Waiting<'a>>,
    /// Candidates from sharing providers only: another tree could yield them again.
    seen: HashSet<Candidate>,
    left: usize,
    steps: u64,
    wasted: u64,
}

/// A tree that was searched and may have more candidates.
#[derive(Debug)]
enum Waiting<'a> {
    /// Start again and skip this many candidates that were already found.
    Again(Slot, usize),
    /// Continue this solver.
    Open(Box<Solver<'a>>),
}

impl<'a> Search<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, query: &'a Query) -> Result<Self, QueryError> {
        query.validate()?;
        let plan = Plan::new(snapshot, query);
        let walk = Walk::new(snapshot.forest.slots(), plan.only, query.seed);
        Ok(Self {
            snapshot,
            query,
            plan,
            walk,
            waiting: VecDeque::new(),
            seen: HashSet::new(),
            left: query.limit.unwrap_or(usize::MAX),
            steps: 0,
            wasted: 0,
        })
    }

    /// Work done so far: trees examined plus providers tried. A measure that needs no clock.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// True if the search ended because it ran out of tries, so that there may be more candidates.
    pub fn gave_up(&self) -> bool {
        self.wasted > MAX_WASTED_TRIES
    }

    /// The next tree that has not been searched yet.
    fn next_tree(&mut self) -> Option<Box<Solver<'a>>> {
        loop {
            let slot = self.walk.next()?;
            self.steps += 1;
            if !self.walk.confined() && self.walk.enters_chunk(slot) {
                let chunk = self.snapshot.forest.chunk(slot);
                if chunk.is_none_or(|chunk| !might_fit(&self.plan, chunk.max_room())) {
                    self.walk.skip_chunk(slot);
                    continue;
                }
            }
            let Some(tree) = self.snapshot.forest.get(slot) else { continue };
            if !might_fit(&self.plan, tree.max_room()) || !root_fits(&self.plan, tree) {
                continue;
            }
            if let Some(solver) = self.begin(slot) {
                return Some(solver);
            }
        }
    }

    fn begin(&self, slot: Slot) -> Option<Box<Solver<'a>>> {
        let anchor = AnchorTree::new(self.snapshot, &self.plan, slot)?;
        Solver::new(&self.plan, anchor, Relaxed::default()).map(Box::new)
    }

    /// The tree that has waited longest, with its solver at the point where its last turn ended.
    fn next_waiting(&mut self) -> Option<Box<Solver<'a>>> {
        loop {
            match self.waiting.pop_front()? {
                Waiting::Open(solver) => return Some(solver),
                Waiting::Again(slot, finds) => {
                    let Some(mut solver) = self.begin(slot) else { continue };
                    for _ in 0..finds {
                        solver.advance(&self.plan, u64::MAX, &mut self.steps);
                    }
                    return Some(solver);
                }
            }
        }
    }

    /// The next new candidate of one tree, if the solver finds one within its tries, and the number of
    /// candidates found, including repeated ones.
    fn next_of(&mut self, solver: &mut Solver<'a>) -> (Stop, Option<Candidate>, usize) {
        let begun = self.steps;
        let mut finds = 0;
        loop {
            let tries = TRIES_PER_TURN.saturating_sub(self.steps - begun);
            let stop = solver.advance(&self.plan, tries, &mut self.steps);
            if stop != Stop::Found {
                self.wasted += self.steps - begun;
                return (stop, None, finds);
            }
            finds += 1;
            let candidate = self.candidate(solver);
            let only_sharing = !self.snapshot.sharing.is_empty()
                && solver.picked().all(|(_, supplier)| supplier.node().has_trait(self.plan.shares));
            if only_sharing && !self.seen.insert(unrooted(&candidate)) {
                continue;
            }
            self.wasted += (self.steps - begun).saturating_sub(TRIES_PER_FIND);
            return (stop, Some(candidate), finds);
        }
    }

    fn candidate(&self, solver: &Solver<'a>) -> Candidate {
        let mut allocations: Vec<(_, ResourceClass, i64)> = Vec::new();
        let mut mappings: Vec<(usize, Vec<_>)> = Vec::new();
        for (part, supplier) in solver.picked() {
            let part = &self.plan.parts[part];
            let provider = supplier.node().id;
            match mappings.last_mut() {
                Some((group, providers)) if *group == part.group => {
                    if !providers.contains(&provider) {
                        providers.push(provider);
                    }
                }
                _ => mappings.push((part.group, vec![provider])),
            }
            for (class, amount) in &part.needs {
                let Some(class) = self.snapshot.names.classes.name(self.plan.classes[*class])
                else {
                    continue;
                };
                match allocations.iter_mut().find(|(p, c, _)| *p == provider && c == class) {
                    Some(entry) => entry.2 += amount,
                    None => allocations.push((provider, class.clone(), *amount)),
                }
            }
        }
        let mappings = mappings
            .into_iter()
            .map(|(group, providers)| (self.query.groups[group].suffix.clone(), providers))
            .collect();
        Candidate { root: solver.anchor().tree.root().id, allocations, mappings }
    }
}

impl Iterator for Search<'_> {
    type Item = Candidate;

    fn next(&mut self) -> Option<Candidate> {
        if self.left == 0 {
            return None;
        }
        while !self.gave_up() {
            let (mut solver, fresh) = match self.next_tree() {
                Some(solver) => (solver, true),
                None => (self.next_waiting()?, false),
            };
            let (stop, candidate, finds) = self.next_of(&mut solver);
            if stop != Stop::Exhausted && !solver.is_spent() {
                let waiting = match candidate {
                    Some(_) if fresh => Waiting::Again(solver.anchor().slot, finds),
                    _ => Waiting::Open(solver),
                };
                self.waiting.push_back(waiting);
            }
            if candidate.is_some() {
                self.left -= 1;
                return candidate;
            }
        }
        None
    }
}

/// A candidate without the root under which it was found.
fn unrooted(candidate: &Candidate) -> Candidate {
    Candidate { root: ProviderId::nil(), ..candidate.clone() }
}

/// The order of slots: from the start slot to the last one, then from slot zero up to the start
/// slot.
#[derive(Debug)]
pub(crate) struct Walk {
    slots: usize,
    start: usize,
    done: usize,
    only: Option<Slot>,
}

impl Walk {
    pub(crate) fn new(slots: usize, only: Option<Slot>, seed: u64) -> Self {
        let start = usize::try_from(scatter(seed) % slots.max(1) as u64).unwrap_or(0);
        Self { slots, start, done: 0, only }
    }

    fn confined(&self) -> bool {
        self.only.is_some()
    }

    /// True if a slot is the first of its chunk in the current stretch of the walk.
    fn enters_chunk(&self, slot: Slot) -> bool {
        slot.is_multiple_of(CHUNK) || self.done == 1
    }

    /// Skips to the end of the chunk of the slot just returned, or to the end of this stretch if that is nearer.
    fn skip_chunk(&mut self, slot: Slot) {
        let end = (slot / CHUNK + 1) * CHUNK;
        let bound = if slot >= self.start { self.slots } else { self.start };
        self.done += end.min(bound) - slot - 1;
    }
}

impl Iterator for Walk {
    type Item = Slot;

    fn next(&mut self) -> Option<Slot> {
        if let Some(only) = self.only {
            self.done += 1;
            return (self.done == 1).then_some(only);
        }
        let at = self.done;
        (at < self.slots).then(|| {
            self.done += 1;
            (self.start + at) % self.slots
        })
    }
}

/// Maps neighbouring seeds to distant numbers. This is the finalizer of SplitMix64.
fn scatter(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
