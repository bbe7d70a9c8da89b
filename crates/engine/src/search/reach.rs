//! Determines which providers may serve which part of a query for one tree: the tree's own
//! providers, and sharing providers of other trees in a common aggregate.
//!
//! The tests are listed in the order in which an explanation names them. A search applies all of
//! them.

use uuid::Uuid;

use super::plan::{GroupConditions, Part, Plan};
use crate::snapshot::{CompactTree, Node, Slot, Snapshot, max_room_of};

/// A provider that one tree can use: one of its own or a sharing provider.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Supplier<'a> {
    pub(crate) slot: Slot,
    pub(crate) tree: &'a CompactTree,
    pub(crate) position: usize,
}

impl<'a> Supplier<'a> {
    pub(crate) fn node(&self) -> &'a Node {
        &self.tree.nodes()[self.position]
    }

    /// True if this provider is `top` or a descendant of `top`.
    pub(crate) fn is_under(&self, top: &Self) -> bool {
        self.slot == top.slot && self.tree.is_under(self.position, top.position)
    }
}

/// A test that a provider must pass to serve a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Test {
    /// It is in the tree that `in_tree` names.
    Tree,
    /// It has an inventory of each class.
    Offers,
    /// Each amount respects the unit limits and fits in the free capacity.
    Room,
    /// The provider of a suffixed group has the required traits.
    Traits,
    /// It has none of the forbidden traits.
    Forbidden,
    /// It meets the conditions on aggregates.
    Aggregates,
}

/// All tests, in the order in which they are tried.
pub(crate) const TESTS: [Test; 6] =
    [Test::Tree, Test::Offers, Test::Room, Test::Traits, Test::Forbidden, Test::Aggregates];

/// One tree with all providers that it can use. Its root is the anchor in Placement's sense.
#[derive(Debug)]
pub(crate) struct AnchorTree<'a> {
    pub(crate) slot: Slot,
    pub(crate) tree: &'a CompactTree,
    /// The tree's own providers by position, then the sharing providers.
    pub(crate) suppliers: Vec<Supplier<'a>>,
}

impl<'a> AnchorTree<'a> {
    pub(crate) fn new(snapshot: &'a Snapshot, plan: &Plan, slot: Slot) -> Option<Self> {
        let tree = snapshot.forest.get(slot)?;
        let own = 0..tree.nodes().len();
        let mut suppliers: Vec<_> = own.map(|position| Supplier { slot, tree, position }).collect();
        let resourceless = plan.parts.iter().any(|part| part.needs.is_empty());
        if resourceless || plan.shared.contains(&true) {
            suppliers.extend(snapshot.sharing.iter().filter(|(at, _)| *at != slot).filter_map(
                |(slot, position)| {
                    let (sharing_tree, position) = (snapshot.forest.get(*slot)?, *position);
                    let in_common =
                        |aggregate: &Uuid| tree.shape.aggregates.binary_search(aggregate).is_ok();
                    let shares = sharing_tree.nodes()[position].aggregates.iter().any(in_common);
                    shares.then_some(Supplier { slot: *slot, tree: sharing_tree, position })
                },
            ));
        }
        Some(Self { slot, tree, suppliers })
    }

    /// True if a provider passes a test for a part.
    pub(crate) fn passes(&self, plan: &Plan, part: &Part, supplier: usize, test: Test) -> bool {
        let supplier = &self.suppliers[supplier];
        let (node, conditions) = (supplier.node(), &plan.conditions[part.group]);
        let inventory =
            |class: usize| supplier.tree.inventory(supplier.position, plan.classes[class]);
        match test {
            Test::Tree => conditions
                .slot
                .is_none_or(|slot| slot == supplier.slot && (part.suffixed || slot == self.slot)),
            Test::Offers => part.needs.iter().all(|(class, _)| inventory(*class).is_some()),
            Test::Room => part
                .needs
                .iter()
                .all(|(class, n)| inventory(*class).is_some_and(|terms| terms.admits(*n))),
            Test::Traits => {
                !part.suffixed
                    || conditions.required.iter().all(|any| any.iter().any(|t| node.has_trait(*t)))
            }
            Test::Forbidden => !conditions.forbidden.iter().any(|t| node.has_trait(*t)),
            Test::Aggregates => self.in_aggregates(part, conditions, supplier),
        }
    }

    /// The providers that pass all tests for a part, in order. `Room` implies `Offers`.
    pub(crate) fn choices(&self, plan: &Plan, part: &Part) -> Vec<usize> {
        let tests = || TESTS.iter().filter(|test| **test != Test::Offers);
        let all = |supplier: &usize| tests().all(|test| self.passes(plan, part, *supplier, *test));
        (0..self.suppliers.len()).filter(all).collect()
    }

    /// For the unsuffixed group, the root's membership counts for its whole tree, and a forbidden
    /// aggregate of the root also excludes sharing providers. A sharing provider must itself be a
    /// member. For a suffixed group the root does not count.
    fn in_aggregates(
        &self,
        part: &Part,
        conditions: &GroupConditions,
        supplier: &Supplier<'_>,
    ) -> bool {
        let member = |node: &Node| {
            conditions.member_of.iter().all(|any| any.iter().any(|uuid| node.in_aggregate(uuid)))
        };
        let barred = |node: &Node| {
            conditions.forbidden_aggregates.iter().any(|uuid| node.in_aggregate(uuid))
        };
        let (node, root) = (supplier.node(), self.tree.root());
        let own = supplier.slot == self.slot;
        let belongs = member(node) || (!part.suffixed && own && member(root));
        belongs && !barred(node) && (part.suffixed || !barred(root))
    }
}

/// True if the root meets the conditions on root traits.
pub(crate) fn root_fits(plan: &Plan, tree: &CompactTree) -> bool {
    let root = tree.root();
    plan.root_required.iter().all(|t| root.has_trait(*t))
        && !plan.root_forbidden.iter().any(|t| root.has_trait(*t))
}

/// True if providers whose room is at most `max_room` for each class might serve every part. Ignores classes that a
/// sharing provider might supply.
pub(crate) fn might_fit(plan: &Plan, max_room: &[(crate::intern::Name, i64)]) -> bool {
    plan.parts.iter().flat_map(|part| &part.needs).all(|(class, amount)| {
        plan.shared[*class] || max_room_of(max_room, plan.classes[*class]) >= *amount
    })
}
