//! Why a query has few candidates or none: which condition removed how many trees, and which tree
//! came nearest.
//!
//! The same tests and the same solver as a search, with one difference: a tree is followed until the
//! first condition that empties it. The effort is bounded: in a large cloud only some trees are looked
//! at, and the explanation says how many. It must never say anything that a search would not do.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kilonova_ids::ProviderId;

use crate::query::{Group, Query, QueryError};
use crate::search::{
    FAIR, Host, PATIENCE, Part, Plan, Relaxed, Solver, Stop, TESTS, TRIES, Test, Walk,
};
use crate::snapshot::{Slot, Snapshot};

/// A condition and what it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The condition, in the language of Placement's queries.
    pub constraint: String,
    /// What it did, as a sentence: `1 of 2 hosts does not offer VGPU.`
    pub text: String,
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
    /// The condition that removed it, in the language of Placement's queries.
    pub constraint: String,
    /// What it lacks: `does not have 1 VGPU free`.
    pub lacks: String,
}

/// What became of all trees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explanation {
    /// Trees there are.
    pub hosts: usize,
    /// Trees that were looked at; the rest would have cost too much. The other fields count these only.
    pub looked_at: usize,
    /// Trees that have a candidate, and those of which that could not be told within reason.
    pub left: usize,
    /// Conditions that removed any, in the order in which they were tried.
    pub steps: Vec<Step>,
    /// The nearest miss.
    pub nearest: Option<Nearest>,
    /// The query makes no sense, and nothing was looked at.
    pub error: Option<QueryError>,
}

impl Explanation {
    /// How many trees have a candidate, as a sentence; nothing when none has, which the steps say.
    pub fn headline(&self) -> Option<String> {
        if let Some(error) = &self.error {
            return Some(format!("{error}."));
        }
        let room = match (self.left, self.looked_at) {
            (0, 0) => Some("There is no host.".to_owned()),
            (0, _) => None,
            (1, 1) => Some("The only host has room.".to_owned()),
            (left, hosts) if left == hosts => Some(format!("All {hosts} hosts have room.")),
            (1, hosts) => Some(format!("1 of {hosts} hosts has room.")),
            (left, hosts) => Some(format!("{left} of {hosts} hosts have room.")),
        };
        let Self { hosts, looked_at, .. } = self;
        let some = (looked_at < hosts).then(|| format!("Looked at {looked_at} of {hosts} hosts."));
        let said: Vec<String> = some.into_iter().chain(room).collect();
        (!said.is_empty()).then(|| said.join(" "))
    }

    /// The nearest miss as a sentence, when nothing has a candidate. It names a host.
    pub fn nearest_miss(&self) -> Option<String> {
        let nearest = self.nearest.as_ref().filter(|_| self.left == 0)?;
        Some(format!("Nearest: {}, which {}.", nearest.name, nearest.lacks))
    }
}

impl fmt::Display for Explanation {
    /// All of it in sentences, with the name of the nearest host.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.steps.iter().map(|step| step.text.clone());
        let all = self.headline().into_iter().chain(steps).chain(self.nearest_miss());
        f.write_str(&all.collect::<Vec<_>>().join(" "))
    }
}

/// The bound on the effort of an explanation. One unit is a tree that a simple test removes. The bound is
/// reached after about 50 ms on one core: 10,000 hosts of eight GPUs that all have room.
const EFFORT: u64 = 40_000;
/// A tree that is looked at. A solver that is set up for it costs as much for each part of the query.
const TREE: u64 = 1;
/// Steps of a solver that cost as much as a tree.
const STEPS: u64 = 4;

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
    let mut effort = Effort { spent: 0, patience: PATIENCE };
    let mut looked_at = 0;
    for slot in Walk::new(world.forest.slots(), None, query.seed) {
        if effort.spent >= EFFORT {
            break;
        }
        looked_at += 1;
        effort.spent += TREE;
        let Some(rank) = obstacle(world, &plan, slot, &mut effort) else { continue };
        *removed.entry(rank).or_default() += 1;
        if nearest.is_none_or(|(best, _)| rank > best) {
            nearest = Some((rank, slot));
        }
    }
    let mut left = looked_at;
    let steps = removed.into_iter().map(|(rank, removed)| {
        let (condition, before) = (condition(query, &plan, rank), left);
        left -= removed;
        let text = condition.sentence(removed, before, looked_at);
        Step { constraint: condition.constraint, text, removed, left }
    });
    let steps: Vec<Step> = steps.collect();
    let nearest = nearest.and_then(|(rank, slot)| {
        let root = world.forest.get(slot)?.root();
        let name = Arc::clone(&root.name);
        let condition = condition(query, &plan, rank);
        let (constraint, lacks) = (condition.constraint, condition.one);
        Some(Nearest { root: root.id, name, constraint, lacks })
    });
    Explanation { hosts: world.len(), looked_at, left, steps, nearest, error: None }
}

const ROOT: u8 = 0;
/// Parts of that stage.
const REQUIRED: usize = 0;
/// Parts of that stage.
const FORBIDDEN: usize = 1;
const ALONE: u8 = 1;
const TOGETHER: u8 = 2;
/// The stage that takes long when none could be told within the tries.
const PACKING: usize = 1;

/// The effort so far, and the tries in vain that solvers have left.
struct Effort {
    spent: u64,
    patience: u64,
}

/// The first condition that leaves a tree with nothing; none if it has a candidate, or if a search
/// could not tell within its tries.
fn obstacle(world: &Snapshot, plan: &Plan, slot: Slot, effort: &mut Effort) -> Option<Rank> {
    let tree = world.forest.get(slot)?;
    let root = tree.root();
    if let Some(absent) = plan.root_required.iter().position(|name| !root.has_trait(*name)) {
        return Some((ROOT, REQUIRED, absent));
    }
    if let Some(present) = plan.root_forbidden.iter().position(|name| root.has_trait(*name)) {
        return Some((ROOT, FORBIDDEN, present));
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
            let stop = solver.advance(plan, TRIES.min(effort.patience), &mut steps);
            effort.patience -= steps.saturating_sub(FAIR).min(effort.patience);
            effort.spent += TREE * plan.parts.len() as u64 + steps / STEPS;
            stop == Stop::Over
        })
    };
    if !stuck(&Relaxed::default()) {
        return None;
    }
    let stage = stages.iter().position(stuck).unwrap_or(PACKING);
    Some((TOGETHER, stage, 0))
}

/// The trait that an operator's `disable` puts on a host.
const DISABLED: &str = "COMPUTE_STATUS_DISABLED";

/// A condition in words.
struct Condition {
    /// In the language of Placement's queries.
    constraint: String,
    /// What a host that meets it does: `offers VGPU`.
    met: String,
    /// What a host that does not meet it does: `does not offer VGPU`.
    one: String,
    /// What several do that do not meet it: `do not offer VGPU`.
    many: String,
}

impl Condition {
    /// Hosts have something, or they do not.
    fn have(constraint: String, what: &str) -> Self {
        Self {
            constraint,
            met: format!("has {what}"),
            one: format!("does not have {what}"),
            many: format!("do not have {what}"),
        }
    }

    /// What the condition did, when so many were left before it.
    fn sentence(&self, removed: usize, before: usize, hosts: usize) -> String {
        let whole = before == hosts;
        if removed == before {
            return match (whole, before) {
                (true, 1) => format!("The only host {}.", self.one),
                (true, _) => format!("None of {hosts} hosts {}.", self.met),
                (false, 1) => format!("The remaining host {}.", self.one),
                (false, _) => format!("None of the remaining {before} hosts {}.", self.met),
            };
        }
        let of = if whole { format!("{hosts}") } else { format!("the remaining {before}") };
        let what = if removed == 1 { &self.one } else { &self.many };
        format!("{removed} of {of} hosts {what}.")
    }
}

fn condition(query: &Query, plan: &Plan, rank: Rank) -> Condition {
    match rank {
        (ROOT, REQUIRED, index) => {
            let name = query.root_required.get(index).map_or("", String::as_str);
            Condition::have(format!("root_required={name}"), &format!("trait {name}"))
        }
        (ROOT, _, index) => {
            let name = query.root_forbidden.get(index).map_or("", String::as_str);
            let constraint = format!("root_required=!{name}");
            if name == DISABLED {
                return Condition {
                    constraint,
                    met: "is enabled".to_owned(),
                    one: "is disabled".to_owned(),
                    many: "are disabled".to_owned(),
                };
            }
            Condition {
                constraint,
                met: format!("is without trait {name}"),
                one: format!("has trait {name}, which is ruled out"),
                many: format!("have trait {name}, which is ruled out"),
            }
        }
        (ALONE, index, number) => {
            let part = &plan.parts[index];
            let needs = needs(query, plan, index);
            alone(&query.groups[part.group], part, &needs, TESTS[number])
        }
        (_, 0, _) => spread(query),
        (_, 1, _) => Condition::have(
            "room for all groups at once".into(),
            "room for everything that is asked for at once",
        ),
        (_, 2, _) => Condition::have(
            "group_policy=isolate".into(),
            "room on different devices (group_policy=isolate)",
        ),
        _ => Condition::have(
            "same_subtree".into(),
            "what is asked for close together (same_subtree)",
        ),
    }
}

/// What a part asks for.
fn needs<'a>(query: &'a Query, plan: &Plan, index: usize) -> Vec<&'a (String, i64)> {
    let part = &plan.parts[index];
    let group = &query.groups[part.group];
    if part.suffixed {
        return group.resources.iter().collect();
    }
    let first = plan.parts.iter().position(|other| other.group == part.group).unwrap_or(index);
    group.resources.get(index - first).into_iter().collect()
}

/// `a`, `a and b`, `a, b and c`.
fn list(words: &[String], last: &str) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}

/// Traits of which each is wanted, or one of several: `trait A and one of B or C`.
fn traits(lists: &[Vec<String>]) -> String {
    let each = |list_of: &Vec<String>| match list_of.as_slice() {
        [one] => one.clone(),
        several => format!("one of {}", list(several, "or")),
    };
    let words: Vec<String> = lists.iter().map(each).collect();
    let what = if words.len() == 1 { "trait" } else { "traits" };
    format!("{what} {}", list(&words, "and"))
}

/// The traits that the providers of the unsuffixed group must have between them.
fn spread(query: &Query) -> Condition {
    let groups = query.groups.iter().filter(|group| group.suffix.is_empty());
    let wanted: Vec<Vec<String>> = groups.flat_map(|group| group.required.clone()).collect();
    let constraint = wanted.iter().map(|list| list.join("|")).collect::<Vec<_>>().join(",");
    Condition::have(format!("required={constraint}"), &traits(&wanted))
}

fn alone(group: &Group, part: &Part, needs: &[&(String, i64)], test: Test) -> Condition {
    let suffix = &group.suffix;
    let asked: Vec<String> =
        needs.iter().map(|(class, amount)| format!("{class}:{amount}")).collect();
    let classes: Vec<String> = needs.iter().map(|(class, _)| class.clone()).collect();
    let what = if classes.is_empty() { "a provider".to_owned() } else { list(&classes, "and") };
    let uuids =
        |list: &[uuid::Uuid]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join("|");
    let resources = format!("resources{suffix}={}", asked.join(","));
    match test {
        Test::Tree => {
            let tree = group.in_tree.map(|id| id.to_string()).unwrap_or_default();
            Condition::have(
                format!("in_tree{suffix}={tree}"),
                &format!("{what} in the tree of provider {tree}"),
            )
        }
        Test::Offers => {
            let together = if part.needs.len() > 1 { " on one device" } else { "" };
            Condition {
                constraint: resources,
                met: format!("offers {what}{together}"),
                one: format!("does not offer {what}{together}"),
                many: format!("do not offer {what}{together}"),
            }
        }
        Test::Room => {
            let amounts: Vec<String> =
                needs.iter().map(|(class, amount)| format!("{amount} {class}")).collect();
            let many = needs.iter().any(|(_, amount)| *amount > 1);
            let units = if many { " for one server" } else { "" };
            Condition::have(resources, &format!("{} free{units}", list(&amounts, "and")))
        }
        Test::Traits => {
            let wanted =
                group.required.iter().map(|list| list.join("|")).collect::<Vec<_>>().join(",");
            Condition::have(
                format!("required{suffix}={wanted}"),
                &format!("{what} with {}", traits(&group.required)),
            )
        }
        Test::Forbidden => Condition::have(
            format!("required{suffix}=!{}", group.forbidden.join(",!")),
            &format!("{what} without {}", {
                let single: Vec<Vec<String>> =
                    group.forbidden.iter().map(|name| vec![name.clone()]).collect();
                traits(&single)
            }),
        ),
        Test::Aggregates => {
            let mut wanted: Vec<String> =
                group.member_of.iter().map(|list| uuids(list.as_slice())).collect();
            if !group.forbidden_aggregates.is_empty() {
                wanted.push(format!("!{}", uuids(&group.forbidden_aggregates)));
            }
            Condition::have(
                format!("member_of{suffix}={}", wanted.join(",")),
                &format!("{what} in the aggregates that are asked for"),
            )
        }
    }
}
