//! A query, compiled to the numbers of one snapshot.
//!
//! A *part* is the share of a query that one provider must serve: each class of the unsuffixed
//! group is a part, and each suffixed group is one part. Unknown names become numbers that match
//! nothing, so compilation cannot fail.

use uuid::Uuid;

use crate::intern::{Name, SHARES};
use crate::query::{Alike, Group, Query};
use crate::snapshot::{Slot, Snapshot};

/// The conditions on the providers of one group.
#[derive(Debug)]
pub(crate) struct GroupConditions {
    pub(crate) required: Vec<Vec<Name>>,
    pub(crate) forbidden: Vec<Name>,
    pub(crate) member_of: Vec<Vec<Uuid>>,
    pub(crate) forbidden_aggregates: Vec<Uuid>,
    /// The only slot whose providers may serve the group.
    pub(crate) slot: Option<Slot>,
}

#[derive(Debug)]
pub(crate) struct Part {
    /// Index of its group in the query.
    pub(crate) group: usize,
    pub(crate) suffixed: bool,
    /// Index into [`Plan::classes`], and the amount.
    pub(crate) needs: Vec<(usize, i64)>,
    /// Indexes of the `same_subtree` sets that contain the part's group.
    pub(crate) subtrees: Vec<usize>,
    /// Indexes of the [`Alike`] conditions on its provider.
    pub(crate) alike: Vec<usize>,
}

/// A compiled [`Alike`] condition.
#[derive(Debug)]
pub(crate) struct AlikePlan {
    /// The traits with the requested prefix, sorted.
    pub(crate) traits: Vec<Name>,
    pub(crate) whole: bool,
    pub(crate) vacant: bool,
}

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) parts: Vec<Part>,
    /// By group.
    pub(crate) conditions: Vec<GroupConditions>,
    pub(crate) classes: Vec<Name>,
    /// By class: the total amount requested.
    pub(crate) demand: Vec<i64>,
    /// By class: true if a sharing provider might supply it to another tree.
    pub(crate) shared: Vec<bool>,
    pub(crate) isolate: bool,
    /// Number of `same_subtree` sets.
    pub(crate) subtrees: usize,
    pub(crate) alike: Vec<AlikePlan>,
    /// Index of the unsuffixed group, if it requires traits.
    pub(crate) collective: Option<usize>,
    pub(crate) root_required: Vec<Name>,
    pub(crate) root_forbidden: Vec<Name>,
    /// The only tree that can serve the query, if it is known before the search.
    pub(crate) only: Option<Slot>,
    pub(crate) shares: Name,
}

/// A slot without a tree.
const NOWHERE: Slot = Slot::MAX;

impl Plan {
    pub(crate) fn new(snapshot: &Snapshot, query: &Query) -> Self {
        let names = |list: &[String]| {
            list.iter().map(|n| snapshot.names.traits.find(n)).collect::<Vec<_>>()
        };
        let mut plan = Self {
            parts: Vec::new(),
            conditions: query.groups.iter().map(|group| conditions_of(snapshot, group)).collect(),
            classes: Vec::new(),
            demand: Vec::new(),
            shared: Vec::new(),
            isolate: query.isolate,
            subtrees: query.same_subtree.len(),
            alike: query.alike.iter().map(|one| alike_of(snapshot, one)).collect(),
            collective: None,
            root_required: names(&query.root_required),
            root_forbidden: names(&query.root_forbidden),
            only: None,
            shares: snapshot.names.traits.find(SHARES),
        };
        for (index, group) in
            query.groups.iter().enumerate().filter(|(_, group)| group.is_relevant())
        {
            let needs: Vec<(usize, i64)> = group
                .resources
                .iter()
                .map(|(class, amount)| {
                    (plan.class(snapshot.names.classes.find(class), *amount), *amount)
                })
                .collect();
            if group.suffix.is_empty() {
                plan.collective = (!group.required.is_empty()).then_some(index);
                let classes = group.resources.iter().map(|(class, _)| class);
                plan.parts.extend(needs.into_iter().zip(classes).map(|(need, class)| Part {
                    group: index,
                    suffixed: false,
                    needs: vec![need],
                    subtrees: Vec::new(),
                    alike: conditions_on(query, "", |one| one.classes.contains(class)),
                }));
            } else {
                let subtrees = (0..query.same_subtree.len())
                    .filter(|set| query.same_subtree[*set].contains(&group.suffix))
                    .collect();
                let alike = conditions_on(query, &group.suffix, |_| true);
                plan.parts.push(Part { group: index, suffixed: true, needs, subtrees, alike });
            }
        }
        plan.mark_shared_classes(snapshot);
        plan.only = plan.parts.iter().find_map(|part| {
            let slot = plan.conditions[part.group].slot?;
            let shares =
                snapshot.forest.get(slot).is_some_and(|tree| !tree.shape.sharing.is_empty());
            (!part.suffixed || !shares).then_some(slot)
        });
        plan
    }

    fn class(&mut self, name: Name, amount: i64) -> usize {
        let known = self.classes.iter().position(|class| *class == name);
        let class = known.unwrap_or_else(|| {
            self.classes.push(name);
            self.demand.push(0);
            self.shared.push(false);
            self.classes.len() - 1
        });
        self.demand[class] = self.demand[class].saturating_add(amount);
        class
    }

    fn mark_shared_classes(&mut self, snapshot: &Snapshot) {
        for (slot, node) in snapshot.sharing.iter() {
            let Some(tree) = snapshot.forest.get(*slot) else { continue };
            for (class, shared) in self.classes.iter().zip(&mut self.shared) {
                *shared |=
                    tree.inventory(*node, *class).is_some_and(|inventory| inventory.room() > 0);
            }
        }
    }
}

/// The indexes of the [`Alike`] conditions on the group with this suffix that `is_meant` accepts.
fn conditions_on(query: &Query, suffix: &str, is_meant: impl Fn(&Alike) -> bool) -> Vec<usize> {
    let is_on = |one: &Alike| one.groups.iter().any(|group| group == suffix) && is_meant(one);
    let all = query.alike.iter().enumerate();
    all.filter(|(_, one)| is_on(one)).map(|(index, _)| index).collect()
}

fn alike_of(snapshot: &Snapshot, alike: &Alike) -> AlikePlan {
    let traits = snapshot.names.traits.beginning_with(&alike.prefix);
    AlikePlan { traits, whole: alike.whole, vacant: alike.vacant }
}

fn conditions_of(snapshot: &Snapshot, group: &Group) -> GroupConditions {
    let any =
        |list: &Vec<String>| list.iter().map(|n| snapshot.names.traits.find(n)).collect::<Vec<_>>();
    GroupConditions {
        required: group.required.iter().map(any).collect(),
        forbidden: any(&group.forbidden),
        member_of: group.member_of.clone(),
        forbidden_aggregates: group.forbidden_aggregates.clone(),
        slot: group.in_tree.map(|provider| snapshot.slot_of(provider).unwrap_or(NOWHERE)),
    }
}
