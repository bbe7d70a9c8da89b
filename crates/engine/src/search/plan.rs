//! A query in the numbers of one snapshot.
//!
//! A *part* is what one provider must serve: each class of the unsuffixed group is a part, and so is
//! each suffixed group as a whole. Names that no provider carries become numbers that match nothing,
//! so nothing here can fail.

use uuid::Uuid;

use crate::intern::{Name, SHARES};
use crate::query::{Group, Query};
use crate::snapshot::{Slot, Snapshot};

/// Conditions on the providers of one group.
#[derive(Debug)]
pub(crate) struct Filter {
    pub(crate) required: Vec<Vec<Name>>,
    pub(crate) forbidden: Vec<Name>,
    pub(crate) member_of: Vec<Vec<Uuid>>,
    pub(crate) forbidden_aggregates: Vec<Uuid>,
    /// The only slot that providers may be in.
    pub(crate) slot: Option<Slot>,
}

#[derive(Debug)]
pub(crate) struct Part {
    /// Index of its group in the query.
    pub(crate) group: usize,
    pub(crate) suffixed: bool,
    /// Index into [`Plan::classes`], and the amount.
    pub(crate) needs: Vec<(usize, i64)>,
    /// The `same_subtree` sets that it is in, by index.
    pub(crate) subtrees: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) parts: Vec<Part>,
    /// By group.
    pub(crate) filters: Vec<Filter>,
    pub(crate) classes: Vec<Name>,
    /// By class, all that is asked for.
    pub(crate) demand: Vec<i64>,
    /// By class, whether some provider might lend it to another tree.
    pub(crate) lent: Vec<bool>,
    pub(crate) isolate: bool,
    /// How many `same_subtree` sets there are.
    pub(crate) subtrees: usize,
    /// Whether the unsuffixed group, at this index, requires traits.
    pub(crate) collective: Option<usize>,
    pub(crate) root_required: Vec<Name>,
    pub(crate) root_forbidden: Vec<Name>,
    /// The only tree that can serve, if that is known beforehand.
    pub(crate) only: Option<Slot>,
    pub(crate) shares: Name,
}

/// A slot that holds nothing.
const NOWHERE: Slot = Slot::MAX;

impl Plan {
    pub(crate) fn new(world: &Snapshot, query: &Query) -> Self {
        let names = |list: &[String]| list.iter().map(|n| world.names.find(n)).collect::<Vec<_>>();
        let mut plan = Self {
            parts: Vec::new(),
            filters: query.groups.iter().map(|group| filter(world, group)).collect(),
            classes: Vec::new(),
            demand: Vec::new(),
            lent: Vec::new(),
            isolate: query.isolate,
            subtrees: query.same_subtree.len(),
            collective: None,
            root_required: names(&query.root_required),
            root_forbidden: names(&query.root_forbidden),
            only: None,
            shares: world.names.find(SHARES),
        };
        for (index, group) in query.groups.iter().enumerate().filter(|(_, group)| group.counts()) {
            let needs: Vec<(usize, i64)> = group
                .resources
                .iter()
                .map(|(class, amount)| (plan.class(world.names.find(class), *amount), *amount))
                .collect();
            if group.suffix.is_empty() {
                plan.collective = (!group.required.is_empty()).then_some(index);
                plan.parts.extend(needs.into_iter().map(|need| Part {
                    group: index,
                    suffixed: false,
                    needs: vec![need],
                    subtrees: Vec::new(),
                }));
            } else {
                let subtrees = (0..query.same_subtree.len())
                    .filter(|set| query.same_subtree[*set].contains(&group.suffix))
                    .collect();
                plan.parts.push(Part { group: index, suffixed: true, needs, subtrees });
            }
        }
        plan.look_at_lenders(world);
        plan.only = plan.parts.iter().find_map(|part| {
            let slot = plan.filters[part.group].slot?;
            let lends = world.forest.get(slot).is_some_and(|tree| !tree.shape.sharing.is_empty());
            (!part.suffixed || !lends).then_some(slot)
        });
        plan
    }

    fn class(&mut self, name: Name, amount: i64) -> usize {
        let known = self.classes.iter().position(|class| *class == name);
        let class = known.unwrap_or_else(|| {
            self.classes.push(name);
            self.demand.push(0);
            self.lent.push(false);
            self.classes.len() - 1
        });
        self.demand[class] = self.demand[class].saturating_add(amount);
        class
    }

    fn look_at_lenders(&mut self, world: &Snapshot) {
        for (slot, node) in world.sharing.iter() {
            let Some(tree) = world.forest.get(*slot) else { continue };
            for (class, lent) in self.classes.iter().zip(&mut self.lent) {
                *lent |=
                    tree.inventory(*node, *class).is_some_and(|inventory| inventory.room() > 0);
            }
        }
    }
}

fn filter(world: &Snapshot, group: &Group) -> Filter {
    let any = |list: &Vec<String>| list.iter().map(|n| world.names.find(n)).collect::<Vec<_>>();
    Filter {
        required: group.required.iter().map(any).collect(),
        forbidden: any(&group.forbidden),
        member_of: group.member_of.clone(),
        forbidden_aggregates: group.forbidden_aggregates.clone(),
        slot: group.in_tree.map(|provider| world.slot_of(provider).unwrap_or(NOWHERE)),
    }
}
