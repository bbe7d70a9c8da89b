//! Which providers of one tree are interchangeable for a query, and which parts are.
//!
//! Eight equal GPUs and eight equal groups have 40,320 candidates that differ in name only. The
//! solver gives one of each kind first: a provider is picked only after the earlier ones of its kind
//! (value precedence), and equal parts pick in rising order. Both are what the lexicographically
//! least member of an orbit satisfies, for one order of parts and one of providers, so that every
//! orbit keeps a member when both hold together.

use std::collections::HashMap;

use super::plan::{Part, Plan};
use super::reach::Host;

#[derive(Debug, Default)]
pub(crate) struct Symmetry {
    /// By actor, its kind and its rank among that kind. Empty when no two are alike.
    kinds: Vec<(usize, usize)>,
    /// By depth, the nearest earlier depth whose part is like this one.
    twins: Vec<Option<usize>>,
}

impl Symmetry {
    /// `rooms` is by actor and class, cut to what is asked for; `covers` by actor and clause.
    pub(crate) fn find(
        plan: &Plan,
        host: &Host<'_>,
        order: &[usize],
        choices: &[Vec<usize>],
        rooms: &[i64],
        covers: &[bool],
    ) -> Self {
        if choices.iter().all(|choice| choice.len() < 2) {
            return Self::default();
        }
        Self {
            kinds: kinds(plan, host, choices, rooms, covers),
            twins: twins(plan, order, choices),
        }
    }

    /// Whether all candidates are of their own kind.
    pub(crate) fn is_trivial(&self) -> bool {
        self.kinds.is_empty() && self.twins.iter().all(Option::is_none)
    }

    /// Whether picking `actor` next keeps the picks the first of their kind.
    pub(crate) fn leads(&self, picks: &[usize], actor: usize) -> bool {
        if let Some(Some(twin)) = self.twins.get(picks.len())
            && picks[*twin] > actor
        {
            return false;
        }
        let Some((kind, rank)) = self.kinds.get(actor).copied() else { return true };
        rank == 0
            || picks.iter().any(|pick| {
                let (other, other_rank) = self.kinds[*pick];
                other == kind && other_rank + 1 >= rank
            })
    }

    /// Whether complete picks are the first of their kind.
    pub(crate) fn is_first(&self, picks: &[usize]) -> bool {
        (0..picks.len()).all(|depth| self.leads(&picks[..depth], picks[depth]))
    }
}

/// With `same_subtree` only leaves below one parent can be swapped; without it the shape of the
/// tree does not matter.
fn kinds(
    plan: &Plan,
    host: &Host<'_>,
    choices: &[Vec<usize>],
    rooms: &[i64],
    covers: &[bool],
) -> Vec<(usize, usize)> {
    let actors = host.actors.len();
    let (classes, clauses) = (rooms.len() / actors, covers.len() / actors);
    let mut members: HashMap<Vec<i64>, (usize, usize)> = HashMap::new();
    let mut kinds = Vec::with_capacity(actors);
    let mut alike = false;
    for actor in 0..actors {
        let mut key: Vec<i64> = Vec::with_capacity(choices.len() + classes + clauses + 1);
        key.extend(choices.iter().map(|list| i64::from(list.binary_search(&actor).is_ok())));
        let used = key.contains(&1);
        key.extend(&rooms[actor * classes..(actor + 1) * classes]);
        key.extend(covers[actor * clauses..(actor + 1) * clauses].iter().map(|c| i64::from(*c)));
        key.push(place(plan, host, actor));
        let next = members.len();
        let member = members.entry(key).or_insert((next, 0));
        kinds.push(*member);
        alike |= used && member.1 > 0;
        member.1 += 1;
    }
    if alike { kinds } else { Vec::new() }
}

/// A number that actors share if the shape of the tree lets them be swapped.
fn place(plan: &Plan, host: &Host<'_>, actor: usize) -> i64 {
    if plan.subtrees == 0 {
        return 0;
    }
    let here = &host.actors[actor];
    let number = |at: usize| i64::try_from(at).unwrap_or(i64::MAX);
    match here.node().parent {
        Some(parent) if here.slot == host.slot && here.node().leaf => number(parent),
        _ => -1 - number(actor),
    }
}

fn twins(plan: &Plan, order: &[usize], choices: &[Vec<usize>]) -> Vec<Option<usize>> {
    let alike = |a: &Part, b: &Part| {
        a.suffixed && b.suffixed && a.needs == b.needs && a.subtrees == b.subtrees
    };
    (0..order.len())
        .map(|depth| {
            (0..depth).rev().find(|&earlier| {
                choices[earlier] == choices[depth]
                    && alike(&plan.parts[order[earlier]], &plan.parts[order[depth]])
            })
        })
        .collect()
}
