//! Explains how many trees each condition of a query removed, and which tree came nearest.
//!
//! Uses the tests and the solver of a search, but follows each tree until the first condition that
//! it does not meet. An explanation must never contradict a search.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kilonova_ids::{ProviderId, ResourceClass};

use crate::query::{Group, Query, QueryError};
use crate::search::{
    AnchorTree, MAX_WASTED_TRIES, Part, Plan, Relaxed, Solver, Stop, TESTS, TRIES_PER_FIND,
    TRIES_PER_TURN, Test, Walk,
};
use crate::shortage::Shortage;
use crate::snapshot::{Slot, Snapshot};

/// A condition and its effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The condition, in the language of Placement's queries.
    pub constraint: String,
    /// The effect as a sentence: `1 of 2 hosts does not offer VGPU.`
    pub text: String,
    /// Number of trees that it removed.
    pub removed: usize,
    /// Number of trees left after it.
    pub left: usize,
}

/// The tree that met the most conditions before one removed it. If missing amounts removed several
/// of these trees, it is the one with the largest available amounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    /// The root of the tree.
    pub root: ProviderId,
    /// The root's name.
    pub name: Arc<str>,
    /// The condition that removed it, in the language of Placement's queries.
    pub constraint: String,
    /// The unmet condition as a predicate: `does not offer VGPU`. For a missing amount, it names
    /// the available one: `has only 2 VGPU free on gpu-1`.
    pub lacks: String,
}

/// The result for all trees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Explanation {
    /// Number of trees in the snapshot.
    pub hosts: usize,
    /// Trees examined within the bound on effort. The fields below refer to these only.
    pub looked_at: usize,
    /// Trees that have a candidate, plus trees for which the search ran out of tries.
    pub left: usize,
    /// Conditions that removed at least one tree, in the order in which they were tested.
    pub steps: Vec<Step>,
    /// The nearest miss.
    pub nearest: Option<Nearest>,
    /// Set when the query is invalid; no tree was examined.
    pub error: Option<QueryError>,
}

impl Explanation {
    /// The number of trees with a candidate, or the query's error, as a sentence. `None` if all
    /// trees were examined and none has a candidate, because the steps then explain that.
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
        let sentences: Vec<String> = some.into_iter().chain(room).collect();
        (!sentences.is_empty()).then(|| sentences.join(" "))
    }

    /// The nearest miss as a sentence, if no tree has a candidate. It names a host.
    pub fn nearest_miss(&self) -> Option<String> {
        let nearest = self.nearest.as_ref().filter(|_| self.left == 0)?;
        Some(format!("Nearest: {}, which {}.", nearest.name, nearest.lacks))
    }
}

impl fmt::Display for Explanation {
    /// All sentences, including the name of the nearest host.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.steps.iter().map(|step| step.text.clone());
        let all = self.headline().into_iter().chain(steps).chain(self.nearest_miss());
        f.write_str(&all.collect::<Vec<_>>().join(" "))
    }
}

/// The bound on the effort of an explanation. One unit is a tree that a simple test removes. The
/// bound is reached after about 50 ms on one core if, for example, 10,000 hosts have eight GPUs
/// each and all have room.
const MAX_EFFORT: u64 = 40_000;
/// The effort of each of these: examining a tree, finding its shortage, and setting up a solver for
/// one part of the query.
const EFFORT_PER_TREE: u64 = 1;
/// Number of a solver's steps that cost as much as a tree.
const STEPS_PER_EFFORT: u64 = 4;

/// Position of a condition in the order of testing. The first element is the stage: [`ROOT_STAGE`],
/// [`PART_STAGE`] or [`JOINT_STAGE`]. The other two are [`REQUIRED`] or [`FORBIDDEN`] and the trait in the root
/// stage, the part and the test per part, and the number of the condition and 0 in the joint stage.
type Rank = (u8, usize, usize);

pub(crate) fn explain(snapshot: &Snapshot, query: &Query) -> Explanation {
    if let Err(error) = query.validate() {
        let hosts = snapshot.len();
        return Explanation { hosts, error: Some(error), ..Explanation::default() };
    }
    let plan = Plan::new(snapshot, query);
    let mut removed: BTreeMap<Rank, usize> = BTreeMap::new();
    let mut nearest: Option<(Rank, i64, Slot)> = None;
    let mut effort = Effort { spent: 0, tries_left: MAX_WASTED_TRIES };
    let mut looked_at = 0;
    for slot in Walk::new(snapshot.forest.slots(), None, query.seed) {
        if effort.spent >= MAX_EFFORT {
            break;
        }
        looked_at += 1;
        effort.spent += EFFORT_PER_TREE;
        let Some(rank) = first_unmet(snapshot, &plan, slot, &mut effort) else { continue };
        *removed.entry(rank).or_default() += 1;
        if nearest.is_none_or(|(best, ..)| rank >= best) {
            effort.spent += EFFORT_PER_TREE;
            let has = shortage(snapshot, &plan, slot, rank).map_or(0, |shortage| shortage.has);
            if nearest.is_none_or(|(best, most, _)| (rank, has) > (best, most)) {
                nearest = Some((rank, has, slot));
            }
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
    let nearest = nearest.and_then(|(rank, _, slot)| {
        let root = snapshot.forest.get(slot)?.root();
        let name = Arc::clone(&root.name);
        let condition = condition(query, &plan, rank);
        let amounts = shortage(snapshot, &plan, slot, rank).and_then(|shortage| {
            let needs = needs(query, &plan, rank.1);
            shortage.predicate(&needs.iter().map(|(class, _)| class).collect::<Vec<_>>())
        });
        let (constraint, lacks) = (condition.constraint, amounts.unwrap_or(condition.one));
        Some(Nearest { root: root.id, name, constraint, lacks })
    });
    Explanation { hosts: snapshot.len(), looked_at, left, steps, nearest, error: None }
}

/// The shortage that removed a tree; `None` if another condition removed it.
fn shortage(snapshot: &Snapshot, plan: &Plan, slot: Slot, rank: Rank) -> Option<Shortage> {
    let (PART_STAGE, part, test) = rank else { return None };
    if TESTS[test] != Test::Room {
        return None;
    }
    Shortage::of(&AnchorTree::new(snapshot, plan, slot)?, plan, &plan.parts[part])
}

const ROOT_STAGE: u8 = 0;
/// Second element of a [`Rank`] in the root stage.
const REQUIRED: usize = 0;
/// Second element of a [`Rank`] in the root stage.
const FORBIDDEN: usize = 1;
const PART_STAGE: u8 = 1;
const JOINT_STAGE: u8 = 2;
/// The condition of the joint stage to report if none could be decided within the tries.
const PACKING: usize = 1;

/// The effort so far, and the number of wasted tries that solvers may still make.
struct Effort {
    spent: u64,
    tries_left: u64,
}

/// The first condition that a tree does not meet. `None` if the tree has a candidate, or if a search
/// could not decide within its tries.
fn first_unmet(snapshot: &Snapshot, plan: &Plan, slot: Slot, effort: &mut Effort) -> Option<Rank> {
    let tree = snapshot.forest.get(slot)?;
    let root = tree.root();
    if let Some(absent) = plan.root_required.iter().position(|name| !root.has_trait(*name)) {
        return Some((ROOT_STAGE, REQUIRED, absent));
    }
    if let Some(present) = plan.root_forbidden.iter().position(|name| root.has_trait(*name)) {
        return Some((ROOT_STAGE, FORBIDDEN, present));
    }
    let anchor = AnchorTree::new(snapshot, plan, slot)?;
    for (index, part) in plan.parts.iter().enumerate() {
        let mut choices: Vec<usize> = (0..anchor.suppliers.len()).collect();
        for (number, test) in TESTS.iter().enumerate() {
            choices.retain(|supplier| anchor.passes(plan, part, *supplier, *test));
            if choices.is_empty() {
                return Some((PART_STAGE, index, number));
            }
        }
    }
    let only_traits = Relaxed { subtree: true, isolate: true, room: true, alike: true };
    let stages = [
        only_traits,
        Relaxed { room: false, ..only_traits },
        Relaxed { subtree: true, alike: true, ..Relaxed::default() },
        Relaxed { alike: true, ..Relaxed::default() },
        Relaxed::default(),
    ];
    let mut stuck = |relaxed: &Relaxed| {
        let anchor = AnchorTree::new(snapshot, plan, slot);
        let solver = anchor.and_then(|anchor| Solver::new(plan, anchor, *relaxed));
        solver.is_none_or(|mut solver| {
            let mut steps = 0;
            let stop = solver.advance(plan, TRIES_PER_TURN.min(effort.tries_left), &mut steps);
            effort.tries_left -= steps.saturating_sub(TRIES_PER_FIND).min(effort.tries_left);
            effort.spent += EFFORT_PER_TREE * plan.parts.len() as u64 + steps / STEPS_PER_EFFORT;
            stop == Stop::Exhausted
        })
    };
    if !stuck(&Relaxed::default()) {
        return None;
    }
    let stage = stages.iter().position(stuck).unwrap_or(PACKING);
    Some((JOINT_STAGE, stage, 0))
}

/// The trait of a host whose compute service is disabled.
const DISABLED: &str = "COMPUTE_STATUS_DISABLED";

/// A condition and its wordings.
struct Condition {
    /// In the language of Placement's queries.
    constraint: String,
    /// Predicate of a host that meets it: `offers VGPU`.
    met: String,
    /// Predicate of a host that does not meet it: `does not offer VGPU`.
    one: String,
    /// Predicate of several hosts that do not meet it: `do not offer VGPU`.
    many: String,
}

impl Condition {
    /// A condition that a host has something.
    fn have(constraint: String, what: &str) -> Self {
        Self {
            constraint,
            met: format!("has {what}"),
            one: format!("does not have {what}"),
            many: format!("do not have {what}"),
        }
    }

    /// The effect as a sentence, given the number of hosts that were left before it.
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
        (ROOT_STAGE, REQUIRED, index) => {
            let name = query.root_required.get(index).map_or("", String::as_str);
            Condition::have(format!("root_required={name}"), &format!("trait {name}"))
        }
        (ROOT_STAGE, _, index) => {
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
                one: format!("has the forbidden trait {name}"),
                many: format!("have the forbidden trait {name}"),
            }
        }
        (PART_STAGE, index, number) => {
            let part = &plan.parts[index];
            let needs = needs(query, plan, index);
            alone(&query.groups[part.group], part, &needs, TESTS[number])
        }
        (_, 0, _) => spread(query),
        (_, 1, _) => Condition::have(
            "room for all groups at once".into(),
            "room for all requested resources at once",
        ),
        (_, 2, _) => Condition::have(
            "group_policy=isolate".into(),
            "room on different devices (group_policy=isolate)",
        ),
        (_, 3, _) => Condition::have(
            "same_subtree".into(),
            "the requested resources within one subtree (same_subtree)",
        ),
        _ => {
            let constraints = query.alike.iter().map(|one| one.constraint.clone());
            let descriptions: Vec<String> =
                query.alike.iter().map(|one| one.description.clone()).collect();
            Condition::have(constraints.collect::<Vec<_>>().join(","), &list(&descriptions, "and"))
        }
    }
}

/// The resources that a part requests.
fn needs<'a>(query: &'a Query, plan: &Plan, index: usize) -> Vec<&'a (ResourceClass, i64)> {
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

/// A list of required traits, each possibly an "any of": `traits A and one of B or C`.
fn traits(lists: &[Vec<String>]) -> String {
    let each = |list_of: &Vec<String>| match list_of.as_slice() {
        [one] => one.clone(),
        several => format!("one of {}", list(several, "or")),
    };
    let words: Vec<String> = lists.iter().map(each).collect();
    let what = if words.len() == 1 { "trait" } else { "traits" };
    format!("{what} {}", list(&words, "and"))
}

/// The condition that the providers of the unsuffixed group collectively have its required traits.
fn spread(query: &Query) -> Condition {
    let groups = query.groups.iter().filter(|group| group.suffix.is_empty());
    let wanted: Vec<Vec<String>> = groups.flat_map(|group| group.required.clone()).collect();
    let constraint = wanted.iter().map(|list| list.join("|")).collect::<Vec<_>>().join(",");
    Condition::have(format!("required={constraint}"), &traits(&wanted))
}

fn alone(group: &Group, part: &Part, needs: &[&(ResourceClass, i64)], test: Test) -> Condition {
    let suffix = &group.suffix;
    let asked: Vec<String> =
        needs.iter().map(|(class, amount)| format!("{class}:{amount}")).collect();
    let classes: Vec<String> = needs.iter().map(|(class, _)| class.to_string()).collect();
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
            &match group.forbidden.as_slice() {
                [one] => format!("{what} without trait {one}"),
                several => format!("{what} without any of the traits {}", list(several, "and")),
            },
        ),
        Test::Aggregates => {
            let mut wanted: Vec<String> =
                group.member_of.iter().map(|list| uuids(list.as_slice())).collect();
            if !group.forbidden_aggregates.is_empty() {
                wanted.push(format!("!{}", uuids(&group.forbidden_aggregates)));
            }
            Condition::have(
                format!("member_of{suffix}={}", wanted.join(",")),
                &format!("{what} in the requested aggregates"),
            )
        }
    }
}
