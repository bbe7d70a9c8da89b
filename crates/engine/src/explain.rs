//! Why a query has few candidates or none: which condition removed how many trees, and which tree
//! came nearest.
//!
//! The same tests and the same solver as a search, with one difference: a tree is followed until the
//! first condition that empties it. It must never say anything that a search would not do.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kilonova_ids::ProviderId;

use crate::query::{Group, Query, QueryError};
use crate::search::{
    FAIR, Host, PATIENCE, Part, Plan, Relaxed, Solver, Stop, TESTS, TRIES, Test, Walk, root_fits,
};
use crate::snapshot::{Slot, Snapshot};

/// A condition and what it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The condition, in words.
    pub constraint: String,
    /// Trees that it removed.
    pub removed: usize,
    /// Trees left after it.
    pub left: usize,
}

/// The tree that met the most conditions before one removed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    /// Its root.
    pub root: ProviderId,
    /// The root's name.
    pub name: Arc<str>,
    /// The condition that removed it.
    pub constraint: String,
}

/// What became of all trees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explanation {
    /// Trees there are.
    pub hosts: usize,
    /// Trees that have a candidate, and those of which that could not be told within reason.
    pub left: usize,
    /// Conditions that removed any, in the order in which they were tried.
    pub steps: Vec<Step>,
    /// The nearest miss.
    pub nearest: Option<Nearest>,
    /// The query makes no sense, and nothing was looked at.
    pub error: Option<QueryError>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(error) = &self.error {
            return write!(f, "{error}.");
        }
        write!(f, "{} of {} hosts can take it.", self.left, self.hosts)?;
        for step in &self.steps {
            write!(f, " {} removed {}, leaving {}.", step.constraint, step.removed, step.left)?;
        }
        match &self.nearest {
            Some(nearest) if self.left == 0 => {
                write!(f, " Nearest was {}: {}.", nearest.name, nearest.constraint)
            }
            _ => Ok(()),
        }
    }
}

/// Position of a condition in the order of trial: stage, part or group, test.
type Rank = (u8, usize, usize);

pub(crate) fn explain(world: &Snapshot, query: &Query) -> Explanation {
    if let Err(error) = query.validate() {
        let hosts = world.len();
        return Explanation { hosts, error: Some(error), ..Explanation::default() };
    }
    let plan = Plan::new(world, query);
    let mut removed: BTreeMap<Rank, usize> = BTreeMap::new();
    let mut nearest: Option<(Rank, Slot)> = None;
    let mut patience = PATIENCE;
    for slot in Walk::new(world.forest.slots(), None, query.seed) {
        let Some(rank) = obstacle(world, &plan, slot, &mut patience) else { continue };
        *removed.entry(rank).or_default() += 1;
        if nearest.is_none_or(|(best, _)| rank > best) {
            nearest = Some((rank, slot));
        }
    }
    let hosts = world.len();
    let mut left = hosts;
    let steps = removed.into_iter().map(|(rank, removed)| {
        left -= removed;
        Step { constraint: words(query, &plan, rank), removed, left }
    });
    let steps: Vec<Step> = steps.collect();
    let nearest = nearest.and_then(|(rank, slot)| {
        let root = world.forest.get(slot)?.root();
        let name = Arc::clone(&root.name);
        Some(Nearest { root: root.id, name, constraint: words(query, &plan, rank) })
    });
    Explanation { hosts, left, steps, nearest, error: None }
}

const ROOT: u8 = 0;
const ALONE: u8 = 1;
const TOGETHER: u8 = 2;
/// The stage that takes long when none could be told within the tries.
const PACKING: usize = 1;

/// The first condition that leaves a tree with nothing; none if it has a candidate, or if a search
/// could not tell within its tries.
fn obstacle(world: &Snapshot, plan: &Plan, slot: Slot, patience: &mut u64) -> Option<Rank> {
    let tree = world.forest.get(slot)?;
    if !root_fits(plan, tree) {
        return Some((ROOT, 0, 0));
    }
    let host = Host::new(world, plan, slot)?;
    for (index, part) in plan.parts.iter().enumerate() {
        let mut choices: Vec<usize> = (0..host.actors.len()).collect();
        for (number, test) in TESTS.iter().enumerate() {
            choices.retain(|actor| host.passes(plan, part, *actor, *test));
            if choices.is_empty() {
                return Some((ALONE, index, number));
            }
        }
    }
    let only_traits = Relaxed { subtree: true, isolate: true, room: true };
    let stages = [
        only_traits,
        Relaxed { room: false, ..only_traits },
        Relaxed { subtree: true, ..Relaxed::default() },
        Relaxed::default(),
    ];
    let mut stuck = |relaxed: &Relaxed| {
        let host = Host::new(world, plan, slot);
        let solver = host.and_then(|host| Solver::new(plan, host, *relaxed));
        solver.is_none_or(|mut solver| {
            let mut steps = 0;
            let stop = solver.advance(plan, TRIES.min(*patience), &mut steps);
            *patience -= steps.saturating_sub(FAIR).min(*patience);
            stop == Stop::Over
        })
    };
    if !stuck(&Relaxed::default()) {
        return None;
    }
    let stage = stages.iter().position(stuck).unwrap_or(PACKING);
    Some((TOGETHER, stage, 0))
}

fn words(query: &Query, plan: &Plan, rank: Rank) -> String {
    match rank {
        (ROOT, ..) => {
            let mut wanted = query.root_required.clone();
            wanted.extend(query.root_forbidden.iter().map(|name| format!("!{name}")));
            format!("root_required={}", wanted.join(","))
        }
        (ALONE, index, number) => {
            let part = &plan.parts[index];
            alone(&query.groups[part.group], part, resources(query, plan, index), TESTS[number])
        }
        (_, 0, _) => spread(query),
        (_, 1, _) => "room for all groups at once".into(),
        (_, 2, _) => "group_policy=isolate".into(),
        _ => "same_subtree".into(),
    }
}

/// What a part asks for, such as `VCPU:2`.
fn resources(query: &Query, plan: &Plan, index: usize) -> String {
    let part = &plan.parts[index];
    let group = &query.groups[part.group];
    let show = |(class, amount): &(String, i64)| format!("{class}:{amount}");
    if part.suffixed {
        return group.resources.iter().map(show).collect::<Vec<_>>().join(",");
    }
    let first = plan.parts.iter().position(|other| other.group == part.group).unwrap_or(index);
    group.resources.get(index - first).map(show).unwrap_or_default()
}

/// The traits that the providers of the unsuffixed group must have between them.
fn spread(query: &Query) -> String {
    let groups = query.groups.iter().filter(|group| group.suffix.is_empty());
    let wanted = groups.flat_map(|group| &group.required).map(|list| list.join("|"));
    let wanted = wanted.collect::<Vec<_>>().join(",");
    format!("required={wanted}: no combination of providers has them")
}

fn alone(group: &Group, part: &Part, resources: String, test: Test) -> String {
    let suffix = &group.suffix;
    let what = if resources.is_empty() { "a provider".to_owned() } else { resources.clone() };
    let any = |lists: &[Vec<String>]| {
        lists.iter().map(|list| list.join("|")).collect::<Vec<_>>().join(",")
    };
    let uuids =
        |list: &[uuid::Uuid]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join("|");
    match test {
        Test::Tree => {
            let tree = group.in_tree.map(|id| id.to_string()).unwrap_or_default();
            format!("in_tree{suffix}={tree} for {what}")
        }
        Test::Offers if part.needs.len() > 1 => {
            format!("resources{suffix}={resources}: offered by one provider")
        }
        Test::Offers => format!("resources{suffix}={resources}: offered at all"),
        Test::Room => format!("resources{suffix}={resources}: free, in units that are allowed"),
        Test::Traits => format!("required{suffix}={} for {what}", any(&group.required)),
        Test::Forbidden => format!("required{suffix}=!{} for {what}", group.forbidden.join(",!")),
        Test::Aggregates => {
            let mut wanted: Vec<String> =
                group.member_of.iter().map(|list| uuids(list.as_slice())).collect();
            if !group.forbidden_aggregates.is_empty() {
                wanted.push(format!("!{}", uuids(&group.forbidden_aggregates)));
            }
            format!("member_of{suffix}={} for {what}", wanted.join(","))
        }
    }
}
