//! Hosts grouped by equal state, and the choice among them.

use std::collections::{BTreeSet, BinaryHeap, HashMap};

use crate::cost::Scorer;
use crate::state::{Host, Shape, WHOLE};

/// The granularity of scores, in devices. Places within one step are equal, and the first host
/// wins, so requests gather on few hosts and others stay idle. Without steps, rounding and tiny
/// differences would scatter requests.
const SCORE_STEP: f64 = 0.01;

/// Device remainders whose scores differ by less are equal.
const SCORE_TOLERANCE: f64 = 1e-9;

/// Maximum number of shapes with cached scores.
const MAX_SHAPES: usize = 1024;

/// A host, and the remainder of the device from which a share is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The host, by its number.
    pub host: u32,
    /// The free remainder of that device before the request; `None` for whole devices and for
    /// requests without devices.
    pub remainder: Option<u16>,
}

/// A class of hosts that are equally good for a request.
#[derive(Debug, Clone, Copy)]
pub struct Placement<'a> {
    /// Its score; greater is better.
    pub score: f64,
    /// The free remainder of the device from which a share is taken.
    pub remainder: Option<u16>,
    /// The hosts, by number.
    pub hosts: &'a BTreeSet<u32>,
}

#[derive(Debug)]
struct Class {
    state: Host,
    hosts: BTreeSet<u32>,
}

/// The score of a class for a shape, with its remainder; `None` if the shape does not fit.
type Score = Option<(f64, Option<u16>)>;

/// Hosts by number, grouped by state, with cached scores. A choice examines each class once; only
/// the classes that appeared since the last request of this shape are scored.
#[derive(Debug)]
pub struct Fleet<S> {
    scorer: S,
    classes: Vec<Class>,
    by_state: HashMap<Host, usize>,
    vacant: Vec<usize>,
    of_host: HashMap<u32, usize>,
    /// By shape: the score of each class that has been computed.
    scores: HashMap<Shape, Vec<Option<Score>>>,
}

/// A class in the order of preference.
struct Rank {
    /// The score, in steps.
    score: f64,
    first: u32,
    class: usize,
}

impl PartialEq for Rank {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Rank {}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.first.cmp(&self.first))
    }
}

impl<S: Scorer> Fleet<S> {
    /// No hosts.
    pub fn new(scorer: S) -> Self {
        Self {
            scorer,
            classes: Vec::new(),
            by_state: HashMap::new(),
            vacant: Vec::new(),
            of_host: HashMap::new(),
            scores: HashMap::new(),
        }
    }

    /// The scorer.
    pub const fn scorer(&self) -> &S {
        &self.scorer
    }

    /// Replaces the scorer and discards all scores.
    pub fn set_scorer(&mut self, scorer: S) {
        self.scorer = scorer;
        self.scores.clear();
    }

    /// The number of classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.by_state.len()
    }

    /// The state of a host.
    #[must_use]
    pub fn host(&self, host: u32) -> Option<&Host> {
        self.of_host.get(&host).map(|class| &self.classes[*class].state)
    }

    /// Adds a host, or sets its state.
    pub fn set(&mut self, host: u32, state: Host) {
        self.remove(host);
        let class = match self.by_state.get(&state) {
            Some(class) => *class,
            None => self.open(state),
        };
        self.classes[class].hosts.insert(host);
        self.of_host.insert(host, class);
    }

    /// Removes a host.
    pub fn remove(&mut self, host: u32) {
        let Some(class) = self.of_host.remove(&host) else { return };
        self.classes[class].hosts.remove(&host);
        if self.classes[class].hosts.is_empty() {
            self.by_state.remove(&self.classes[class].state);
            self.vacant.push(class);
            for scores in self.scores.values_mut() {
                if let Some(score) = scores.get_mut(class) {
                    *score = None;
                }
            }
        }
    }

    fn open(&mut self, state: Host) -> usize {
        let class = Class { state: state.clone(), hosts: BTreeSet::new() };
        let at = match self.vacant.pop() {
            Some(at) => {
                self.classes[at] = class;
                at
            }
            None => {
                self.classes.push(class);
                self.classes.len() - 1
            }
        };
        self.by_state.insert(state, at);
        at
    }

    /// The classes in which a request fits, best first; equal ones by their first host.
    pub fn rank(&mut self, shape: &Shape) -> impl Iterator<Item = Placement<'_>> {
        if self.scores.len() >= MAX_SHAPES && !self.scores.contains_key(shape) {
            self.scores.clear();
        }
        let scores = self.scores.entry(*shape).or_default();
        scores.resize(self.classes.len(), None);
        let mut heap = Vec::with_capacity(self.by_state.len());
        for (at, class) in self.classes.iter().enumerate() {
            let Some(first) = class.hosts.first() else { continue };
            let score = scores[at].get_or_insert_with(|| best(&self.scorer, &class.state, shape));
            if let Some((score, _)) = score {
                heap.push(Rank { score: (*score / SCORE_STEP).floor(), first: *first, class: at });
            }
        }
        let mut heap = BinaryHeap::from(heap);
        let (classes, scores) = (&self.classes, &*scores);
        std::iter::from_fn(move || {
            let class = heap.pop()?.class;
            let (score, remainder) = scores[class].flatten()?;
            Some(Placement { score, remainder, hosts: &classes[class].hosts })
        })
    }

    /// The best place; among equal ones the host with the smallest number.
    pub fn choose(&mut self, shape: &Shape) -> Option<Place> {
        let best = self.rank(shape).next()?;
        best.hosts.first().map(|host| Place { host: *host, remainder: best.remainder })
    }

    /// Places a request. Returns false, and changes nothing, if it does not fit there.
    pub fn claim(&mut self, shape: &Shape, place: Place) -> bool {
        let after = self.host(place.host).and_then(|state| state.after(shape, place.remainder));
        after.is_some_and(|after| {
            self.set(place.host, after);
            true
        })
    }
}

/// The best score of a state, over the distinct remainders from which a share can be taken.
fn best(scorer: &impl Scorer, state: &Host, shape: &Shape) -> Score {
    if !state.fits(shape) {
        return None;
    }
    if !shape.is_accelerated() || shape.share >= WHOLE || shape.count > 1 {
        let after = state.after(shape, None)?;
        let others = if shape.share >= WHOLE { state.others(WHOLE) } else { 0 };
        return Some((scorer.score(state, &after, shape) - weigh(scorer, others), None));
    }
    let mut found: Score = None;
    let mut last = None;
    // The smallest remainder first: among equal scores the tightest device wins.
    for remainder in state.free().iter().rev().filter(|free| **free >= shape.share) {
        if last == Some(*remainder) {
            continue;
        }
        last = Some(*remainder);
        let after = state.after(shape, Some(*remainder))?;
        let score = scorer.score(state, &after, shape) - weigh(scorer, state.others(*remainder));
        if found.is_none_or(|(best, _)| score > best + SCORE_TOLERANCE) {
            found = Some((score, Some(*remainder)));
        }
    }
    found
}

/// The penalty for a place on a card of which requests of other kinds could use this many
/// thousandths.
fn weigh(scorer: &impl Scorer, others: u16) -> f64 {
    scorer.kept_for_others() * f64::from(others) / f64::from(WHOLE)
}
