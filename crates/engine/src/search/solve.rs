//! The candidates of one tree: a provider for each part, by depth-first search with look-ahead.
//!
//! ```text
//! Leading:  only picks that are the first of their kind (see `symmetry`)
//!    │ exhausted, something found, and there are kinds
//!    ▼
//! Rest:     all other picks
//! ```
//! Symmetry is computed only after a dead end or a find: the first find is lexicographically the
//! smallest, and is therefore the first of its kind.
//!
//! The search stops after each find and can continue from there, so a tree costs only the work
//! requested of it. It also stops after a number of tries without a find: packing is hard in the
//! worst case, and no tree may hold up the others.

use super::alike::AlikeSet;
use super::plan::Plan;
use super::reach::{AnchorTree, Supplier};
use super::symmetry::Symmetry;

/// Conditions to ignore in order to find out which one is not met.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Relaxed {
    pub(crate) subtree: bool,
    pub(crate) isolate: bool,
    pub(crate) room: bool,
    pub(crate) alike: bool,
}

/// The state in which a search stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It found a candidate.
    Found,
    /// There are no further candidates.
    Exhausted,
    /// It used up its tries and can continue.
    OutOfTries,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    Leading,
    Rest,
    Done,
}

#[derive(Debug)]
pub(crate) struct Solver<'a> {
    pub(super) anchor: AnchorTree<'a>,
    pub(super) relaxed: Relaxed,
    /// By depth: the part, and the providers that may serve it.
    pub(super) order: Vec<usize>,
    pub(super) choices: Vec<Vec<usize>>,
    /// By provider and class: the amount left.
    pub(super) rooms: Vec<i64>,
    /// By provider: the number of suffixed parts it serves.
    pub(super) holds: Vec<usize>,
    /// By provider and clause of the unsuffixed group's required traits: true if the provider has
    /// one of the clause's traits.
    pub(super) covers: Vec<bool>,
    pub(super) clauses: usize,
    /// The conditions that require a common trait.
    pub(super) alike: Vec<AlikeSet>,
    pub(super) picks: Vec<usize>,
    next: Vec<usize>,
    /// Computed only when it can matter.
    symmetry: Option<Symmetry>,
    pass: Pass,
    found: bool,
    /// True after a dead end: the search then looks farther ahead.
    dead_end: bool,
}

impl<'a> Solver<'a> {
    /// `None` if some part has no provider that can serve it, or if the parts provably cannot be
    /// served together.
    pub(crate) fn new(plan: &Plan, anchor: AnchorTree<'a>, relaxed: Relaxed) -> Option<Self> {
        let mut parts = Vec::with_capacity(plan.parts.len());
        for (index, part) in plan.parts.iter().enumerate() {
            let choices = anchor.choices(plan, part);
            if choices.is_empty() {
                return None;
            }
            parts.push((index, choices));
        }
        parts.sort_by_key(|(_, choices)| choices.len());
        let (order, choices): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let rooms = rooms(plan, &anchor);
        let required = plan.collective.map_or(&[][..], |group| &plan.conditions[group].required);
        let mut covers = Vec::with_capacity(anchor.suppliers.len() * required.len());
        for supplier in &anchor.suppliers {
            let node = supplier.node();
            covers.extend(required.iter().map(|any| any.iter().any(|t| node.has_trait(*t))));
        }
        let alike = AlikeSet::all(plan, &anchor);
        let solver = Self {
            relaxed,
            alike,
            holds: vec![0; anchor.suppliers.len()],
            next: vec![0; order.len()],
            picks: Vec::with_capacity(order.len()),
            clauses: required.len(),
            anchor,
            order,
            choices,
            rooms,
            covers,
            symmetry: None,
            pass: Pass::Leading,
            found: false,
            dead_end: false,
        };
        (!solver.is_refuted(plan, true)).then_some(solver)
    }

    pub(crate) fn anchor(&self) -> &AnchorTree<'a> {
        &self.anchor
    }

    /// Searches for the next picks with at most `tries` tries, and adds the tries made to `steps`.
    pub(crate) fn advance(&mut self, plan: &Plan, tries: u64, steps: &mut u64) -> Stop {
        let last = steps.saturating_add(tries);
        while self.pass != Pass::Done {
            if *steps >= last {
                return Stop::OutOfTries;
            }
            let depth = self.picks.len();
            if depth == self.order.len() {
                self.find_symmetry(plan);
                self.undo(plan);
            } else if self.deepen(plan, steps) {
                if depth + 1 < self.order.len() {
                    self.next[depth + 1] = 0;
                } else if self.pass == Pass::Leading || !self.is_first() {
                    self.found = true;
                    return Stop::Found;
                }
            } else if depth > 0 {
                self.undo(plan);
            } else {
                let more = self.found && self.pass == Pass::Leading && !self.is_asymmetric();
                self.pass = if more { Pass::Rest } else { Pass::Done };
                self.next[0] = 0;
            }
        }
        Stop::Exhausted
    }

    /// The picks as part and provider, in the order of the parts.
    pub(crate) fn picked(&self) -> impl Iterator<Item = (usize, &Supplier<'a>)> {
        let mut picks: Vec<(usize, usize)> =
            self.order.iter().copied().zip(self.picks.iter().copied()).collect();
        picks.sort_unstable();
        picks.into_iter().map(|(part, supplier)| (part, &self.anchor.suppliers[supplier]))
    }

    /// True if no further candidate can exist.
    pub(crate) fn is_spent(&self) -> bool {
        self.pass == Pass::Done || self.choices.iter().all(|choices| choices.len() == 1)
    }

    /// True if a provider can serve the part at a depth in addition to the parts it serves already.
    pub(super) fn has_room(&self, plan: &Plan, depth: usize, supplier: usize) -> bool {
        let part = &plan.parts[self.order[depth]];
        let alone = !self.relaxed.isolate && plan.isolate && part.suffixed;
        if alone && self.holds[supplier] > 0 {
            return false;
        }
        let rooms = &self.rooms[supplier * plan.classes.len()..];
        self.relaxed.room || part.needs.iter().all(|(class, amount)| rooms[*class] >= *amount)
    }

    fn deepen(&mut self, plan: &Plan, steps: &mut u64) -> bool {
        let depth = self.picks.len();
        while let Some(&supplier) = self.choices[depth].get(self.next[depth]) {
            self.next[depth] += 1;
            *steps += 1;
            if self.pass == Pass::Leading
                && self.symmetry.as_ref().is_some_and(|known| !known.leads(&self.picks, supplier))
            {
                continue;
            }
            if !self.has_room(plan, depth, supplier) {
                continue;
            }
            self.put(plan, depth, supplier, 1);
            self.picks.push(supplier);
            if !self.is_refuted(plan, self.dead_end) {
                return true;
            }
            self.dead_end = true;
            self.undo(plan);
            self.find_symmetry(plan);
        }
        false
    }

    fn find_symmetry(&mut self, plan: &Plan) {
        if self.symmetry.is_none() {
            let (order, choices) = (&self.order, &self.choices);
            let rooms = rooms(plan, &self.anchor);
            self.symmetry = Some(Symmetry::find(
                plan,
                &self.anchor,
                order,
                choices,
                &rooms,
                &self.covers,
                &self.alike,
            ));
        }
    }

    /// True if the picks are the first of their kind and were therefore found already.
    fn is_first(&self) -> bool {
        self.symmetry.as_ref().is_none_or(|known| known.is_first(&self.picks))
    }

    fn is_asymmetric(&self) -> bool {
        self.symmetry.as_ref().is_none_or(Symmetry::is_trivial)
    }

    fn undo(&mut self, plan: &Plan) {
        if let Some(supplier) = self.picks.pop() {
            self.put(plan, self.picks.len(), supplier, -1);
        }
    }

    fn put(&mut self, plan: &Plan, depth: usize, supplier: usize, sign: i64) {
        let part = &plan.parts[self.order[depth]];
        for (class, amount) in &part.needs {
            self.rooms[supplier * plan.classes.len() + class] -= sign * amount;
        }
        if part.suffixed {
            self.holds[supplier] = self.holds[supplier].wrapping_add_signed(sign as isize);
        }
    }
}

/// By provider and class: the room, capped at the total demand.
fn rooms(plan: &Plan, anchor: &AnchorTree<'_>) -> Vec<i64> {
    let mut rooms = Vec::with_capacity(anchor.suppliers.len() * plan.classes.len());
    for supplier in &anchor.suppliers {
        rooms.extend(plan.classes.iter().zip(&plan.demand).map(|(class, demand)| {
            let inventory = supplier.tree.inventory(supplier.position, *class);
            inventory.map_or(0, |inventory| inventory.room().min(*demand))
        }));
    }
    rooms
}
