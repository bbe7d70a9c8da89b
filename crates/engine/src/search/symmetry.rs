//! Determines which providers of one tree, and which parts, are interchangeable for a query.
//!
//! Eight identical GPUs and eight identical groups have 40,320 candidates that differ only in names; such
//! candidates form an orbit. The solver first yields one candidate of each orbit by two rules: it picks
//! a provider only after the earlier ones of its kind (value precedence), and identical parts pick in
//! ascending order. For any fixed order of parts and of providers, the lexicographically least member of an
//! orbit satisfies both rules. Therefore every orbit keeps a member when both rules apply.

use std::collections::HashMap;

use super::alike::AlikeSet;
use super::plan::{Part, Plan};
use super::reach::AnchorTree;

#[derive(Debug, Default)]
pub(crate) struct Symmetry {
    /// By provider: its kind and its rank within that kind. Empty if no two are interchangeable.
    kinds: Vec<(usize, usize)>,
    /// By depth: the nearest earlier depth whose part is interchangeable with this one.
    twins: Vec<Option<usize>>,
}

impl Symmetry {
    /// `rooms` is indexed by provider and class, and capped at the demand; `covers` is indexed by
    /// provider and clause.
    pub(crate) fn find(
        plan: &Plan,
        anchor: &AnchorTree<'_>,
        order: &[usize],
        choices: &[Vec<usize>],
        rooms: &[i64],
        covers: &[bool],
        alike: &[AlikeSet],
    ) -> Self {
        if choices.iter().all(|choice| choice.len() < 2) {
            return Self::default();
        }
        Self {
            kinds: kinds(plan, anchor, choices, rooms, covers, alike),
            twins: twins(plan, order, choices),
        }
    }

    /// True if no two providers and no two parts are interchangeable.
    pub(crate) fn is_trivial(&self) -> bool {
        self.kinds.is_empty() && self.twins.iter().all(Option::is_none)
    }

    /// True if the picks still satisfy both rules of this module if `supplier` is picked next.
    pub(crate) fn leads(&self, picks: &[usize], supplier: usize) -> bool {
        if let Some(Some(twin)) = self.twins.get(picks.len())
            && picks[*twin] > supplier
        {
            return false;
        }
        let Some((kind, rank)) = self.kinds.get(supplier).copied() else { return true };
        rank == 0
            || picks.iter().any(|pick| {
                let (other, other_rank) = self.kinds[*pick];
                other == kind && other_rank + 1 >= rank
            })
    }

    /// True if complete picks satisfy both rules of this module.
    pub(crate) fn is_first(&self, picks: &[usize]) -> bool {
        (0..picks.len()).all(|depth| self.leads(&picks[..depth], picks[depth]))
    }
}

/// The kind of each provider and its rank within that kind. With `same_subtree` only leaves with the
/// same parent are interchangeable. Without it the shape of the tree does not matter.
fn kinds(
    plan: &Plan,
    anchor: &AnchorTree<'_>,
    choices: &[Vec<usize>],
    rooms: &[i64],
    covers: &[bool],
    conditions: &[AlikeSet],
) -> Vec<(usize, usize)> {
    let suppliers = anchor.suppliers.len();
    let (classes, clauses) = (rooms.len() / suppliers, covers.len() / suppliers);
    let mut members: HashMap<Vec<i64>, (usize, usize)> = HashMap::new();
    let mut kinds = Vec::with_capacity(suppliers);
    let mut alike = false;
    for supplier in 0..suppliers {
        let mut key: Vec<i64> = Vec::with_capacity(choices.len() + classes + clauses + 1);
        key.extend(choices.iter().map(|list| i64::from(list.binary_search(&supplier).is_ok())));
        let used = key.contains(&1);
        key.extend(&rooms[supplier * classes..(supplier + 1) * classes]);
        key.extend(
            covers[supplier * clauses..(supplier + 1) * clauses].iter().map(|c| i64::from(*c)),
        );
        let common = conditions.iter().flat_map(|set| set.traits_of(supplier));
        key.extend(common.map(i64::from));
        key.push(place(plan, anchor, supplier));
        let next = members.len();
        let member = members.entry(key).or_insert((next, 0));
        kinds.push(*member);
        alike |= used && member.1 > 0;
        member.1 += 1;
    }
    if alike { kinds } else { Vec::new() }
}

/// A number that is equal for two providers if the shape of the tree allows swapping them.
fn place(plan: &Plan, anchor: &AnchorTree<'_>, supplier: usize) -> i64 {
    if plan.subtrees == 0 {
        return 0;
    }
    let here = &anchor.suppliers[supplier];
    let number = |at: usize| i64::try_from(at).unwrap_or(i64::MAX);
    match here.node().parent {
        Some(parent) if here.slot == anchor.slot && here.node().leaf => number(parent),
        _ => -1 - number(supplier),
    }
}

fn twins(plan: &Plan, order: &[usize], choices: &[Vec<usize>]) -> Vec<Option<usize>> {
    let alike = |a: &Part, b: &Part| {
        a.suffixed
            && b.suffixed
            && a.needs == b.needs
            && a.subtrees == b.subtrees
            && a.alike == b.alike
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
