//! The candidates of one tree: a provider for each part, by depth-first search with look-ahead.
//!
//! ```text
//! Leading:  only picks that are the first of their kind (see `symmetry`)
//!    │ exhausted, something found, and there are kinds
//!    ▼
//! Rest:     all other picks
//! ```
//! What is alike is only looked for after a dead end or a find: the first find is the least of all,
//! and that is the first of its kind anyway.
//!
//! The search stops after each find and goes on from there, so a tree costs what is asked of it. It
//! also stops after a number of tries without a find: packing is hard in the worst case, and no
//! tree may hold up the others.

use super::plan::Plan;
use super::reach::{Actor, Host};
use super::symmetry::Symmetry;

/// Conditions to leave out, to learn which one stands in the way.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Relaxed {
    pub(crate) subtree: bool,
    pub(crate) isolate: bool,
    pub(crate) room: bool,
}

/// Where a search stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// At a find.
    Found,
    /// At the end: there is no other.
    Over,
    /// In between, because it tried for long enough. It can go on.
    Tired,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    Leading,
    Rest,
    Over,
}

#[derive(Debug)]
pub(crate) struct Solver<'a> {
    pub(super) host: Host<'a>,
    pub(super) relaxed: Relaxed,
    /// By depth: the part, and who may serve it.
    pub(super) order: Vec<usize>,
    pub(super) choices: Vec<Vec<usize>>,
    /// By actor and class: what is left.
    pub(super) rooms: Vec<i64>,
    /// By actor: how many suffixed parts it serves.
    pub(super) holds: Vec<usize>,
    /// By actor and clause of what the unsuffixed group requires.
    pub(super) covers: Vec<bool>,
    pub(super) clauses: usize,
    pub(super) picks: Vec<usize>,
    next: Vec<usize>,
    /// Known only when it can matter.
    symmetry: Option<Symmetry>,
    pass: Pass,
    found: bool,
    /// A dead end was met: look farther ahead from now on.
    trouble: bool,
}

impl<'a> Solver<'a> {
    /// None when some part can be served by nobody, or plainly not all together.
    pub(crate) fn new(plan: &Plan, host: Host<'a>, relaxed: Relaxed) -> Option<Self> {
        let mut parts = Vec::with_capacity(plan.parts.len());
        for (index, part) in plan.parts.iter().enumerate() {
            let choices = host.choices(plan, part);
            if choices.is_empty() {
                return None;
            }
            parts.push((index, choices));
        }
        parts.sort_by_key(|(_, choices)| choices.len());
        let (order, choices): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let rooms = rooms(plan, &host);
        let required = plan.collective.map_or(&[][..], |group| &plan.filters[group].required);
        let mut covers = Vec::with_capacity(host.actors.len() * required.len());
        for actor in &host.actors {
            let node = actor.node();
            covers.extend(required.iter().map(|any| any.iter().any(|t| node.has_trait(*t))));
        }
        let solver = Self {
            relaxed,
            holds: vec![0; host.actors.len()],
            next: vec![0; order.len()],
            picks: Vec::with_capacity(order.len()),
            clauses: required.len(),
            host,
            order,
            choices,
            rooms,
            covers,
            symmetry: None,
            pass: Pass::Leading,
            found: false,
            trouble: false,
        };
        (!solver.is_hopeless(plan, true)).then_some(solver)
    }

    pub(crate) fn host(&self) -> &Host<'a> {
        &self.host
    }

    /// Looks for the next picks, with so many tries at most; `steps` is raised by those made.
    pub(crate) fn advance(&mut self, plan: &Plan, tries: u64, steps: &mut u64) -> Stop {
        let last = steps.saturating_add(tries);
        while self.pass != Pass::Over {
            if *steps >= last {
                return Stop::Tired;
            }
            let depth = self.picks.len();
            if depth == self.order.len() {
                self.look_for_symmetry(plan);
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
                self.pass = if more { Pass::Rest } else { Pass::Over };
                self.next[0] = 0;
            }
        }
        Stop::Over
    }

    /// The picks, as part and provider, in the order of the parts.
    pub(crate) fn picked(&self) -> impl Iterator<Item = (usize, &Actor<'a>)> {
        let mut picks: Vec<(usize, usize)> =
            self.order.iter().copied().zip(self.picks.iter().copied()).collect();
        picks.sort_unstable();
        picks.into_iter().map(|(part, actor)| (part, &self.host.actors[actor]))
    }

    /// Whether it is plain that nothing more will be found.
    pub(crate) fn is_spent(&self) -> bool {
        self.pass == Pass::Over || self.choices.iter().all(|choices| choices.len() == 1)
    }

    /// Whether an actor can serve the part at a depth beside what it serves already.
    pub(super) fn has_room(&self, plan: &Plan, depth: usize, actor: usize) -> bool {
        let part = &plan.parts[self.order[depth]];
        let alone = !self.relaxed.isolate && plan.isolate && part.suffixed;
        if alone && self.holds[actor] > 0 {
            return false;
        }
        let rooms = &self.rooms[actor * plan.classes.len()..];
        self.relaxed.room || part.needs.iter().all(|(class, amount)| rooms[*class] >= *amount)
    }

    fn deepen(&mut self, plan: &Plan, steps: &mut u64) -> bool {
        let depth = self.picks.len();
        while let Some(&actor) = self.choices[depth].get(self.next[depth]) {
            self.next[depth] += 1;
            *steps += 1;
            if self.pass == Pass::Leading
                && self.symmetry.as_ref().is_some_and(|known| !known.leads(&self.picks, actor))
            {
                continue;
            }
            if !self.has_room(plan, depth, actor) {
                continue;
            }
            self.put(plan, depth, actor, 1);
            self.picks.push(actor);
            if !self.is_hopeless(plan, self.trouble) {
                return true;
            }
            self.trouble = true;
            self.undo(plan);
            self.look_for_symmetry(plan);
        }
        false
    }

    fn look_for_symmetry(&mut self, plan: &Plan) {
        if self.symmetry.is_none() {
            let (order, choices) = (&self.order, &self.choices);
            let rooms = rooms(plan, &self.host);
            self.symmetry =
                Some(Symmetry::find(plan, &self.host, order, choices, &rooms, &self.covers));
        }
    }

    /// Whether the picks are the first of their kind, so that they were found already.
    fn is_first(&self) -> bool {
        self.symmetry.as_ref().is_none_or(|known| known.is_first(&self.picks))
    }

    fn is_asymmetric(&self) -> bool {
        self.symmetry.as_ref().is_none_or(Symmetry::is_trivial)
    }

    fn undo(&mut self, plan: &Plan) {
        if let Some(actor) = self.picks.pop() {
            self.put(plan, self.picks.len(), actor, -1);
        }
    }

    fn put(&mut self, plan: &Plan, depth: usize, actor: usize, sign: i64) {
        let part = &plan.parts[self.order[depth]];
        for (class, amount) in &part.needs {
            self.rooms[actor * plan.classes.len() + class] -= sign * amount;
        }
        if part.suffixed {
            self.holds[actor] = self.holds[actor].wrapping_add_signed(sign as isize);
        }
    }
}

/// By actor and class, what is left there, cut to what is asked for in all.
fn rooms(plan: &Plan, host: &Host<'_>) -> Vec<i64> {
    let mut rooms = Vec::with_capacity(host.actors.len() * plan.classes.len());
    for actor in &host.actors {
        rooms.extend(plan.classes.iter().zip(&plan.demand).map(|(class, demand)| {
            let inventory = actor.tree.inventory(actor.position, *class);
            inventory.map_or(0, |inventory| inventory.room().min(*demand))
        }));
    }
    rooms
}
