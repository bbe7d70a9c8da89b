//! Which providers may serve which part of a query, for one tree: its own providers, and those of
//! other trees that share an aggregate with it and lend.
//!
//! The tests are a list, in the order in which an explanation names them; a search applies all.

use uuid::Uuid;

use super::plan::{Filter, Part, Plan};
use crate::snapshot::{Node, Planted, Slot, Snapshot, best_of};

/// A provider as one tree sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Actor<'a> {
    pub(crate) slot: Slot,
    pub(crate) tree: &'a Planted,
    pub(crate) position: usize,
}

impl<'a> Actor<'a> {
    pub(crate) fn node(&self) -> &'a Node {
        &self.tree.nodes()[self.position]
    }

    /// Whether it is `top` or below it.
    pub(crate) fn is_under(&self, top: &Self) -> bool {
        self.slot == top.slot && self.tree.is_under(self.position, top.position)
    }
}

/// What a provider must pass to serve a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Test {
    /// It is in the tree that was named.
    Tree,
    /// It has the classes at all.
    Offers,
    /// Amount, units and free capacity are right for each class.
    Room,
    /// A suffixed group's provider has the traits.
    Traits,
    /// It has none of the forbidden traits.
    Forbidden,
    /// It is in the right aggregates.
    Aggregates,
}

/// All tests, in order.
pub(crate) const TESTS: [Test; 6] =
    [Test::Tree, Test::Offers, Test::Room, Test::Traits, Test::Forbidden, Test::Aggregates];

/// One tree with all that it can use.
#[derive(Debug)]
pub(crate) struct Host<'a> {
    pub(crate) slot: Slot,
    pub(crate) tree: &'a Planted,
    /// Its own providers, by position, then those that lend to it.
    pub(crate) actors: Vec<Actor<'a>>,
}

impl<'a> Host<'a> {
    pub(crate) fn new(world: &'a Snapshot, plan: &Plan, slot: Slot) -> Option<Self> {
        let tree = world.forest.get(slot)?;
        let own = 0..tree.nodes().len();
        let mut actors: Vec<_> = own.map(|position| Actor { slot, tree, position }).collect();
        let resourceless = plan.parts.iter().any(|part| part.needs.is_empty());
        if resourceless || plan.lent.contains(&true) {
            actors.extend(world.sharing.iter().filter(|(at, _)| *at != slot).filter_map(
                |(slot, position)| {
                    let (lender, position) = (world.forest.get(*slot)?, *position);
                    let shared =
                        |aggregate: &Uuid| tree.shape.aggregates.binary_search(aggregate).is_ok();
                    let lends = lender.nodes()[position].aggregates.iter().any(shared);
                    lends.then_some(Actor { slot: *slot, tree: lender, position })
                },
            ));
        }
        Some(Self { slot, tree, actors })
    }

    /// Whether a provider passes a test for a part.
    pub(crate) fn passes(&self, plan: &Plan, part: &Part, actor: usize, test: Test) -> bool {
        let actor = &self.actors[actor];
        let (node, filter) = (actor.node(), &plan.filters[part.group]);
        let inventory = |class: usize| actor.tree.inventory(actor.position, plan.classes[class]);
        match test {
            Test::Tree => filter
                .slot
                .is_none_or(|slot| slot == actor.slot && (part.suffixed || slot == self.slot)),
            Test::Offers => part.needs.iter().all(|(class, _)| inventory(*class).is_some()),
            Test::Room => part
                .needs
                .iter()
                .all(|(class, n)| inventory(*class).is_some_and(|terms| terms.admits(*n))),
            Test::Traits => {
                !part.suffixed
                    || filter.required.iter().all(|any| any.iter().any(|t| node.has_trait(*t)))
            }
            Test::Forbidden => !filter.forbidden.iter().any(|t| node.has_trait(*t)),
            Test::Aggregates => self.in_aggregates(part, filter, actor),
        }
    }

    /// The providers that pass all tests for a part, in order. Who has room offers it, too.
    pub(crate) fn choices(&self, plan: &Plan, part: &Part) -> Vec<usize> {
        let tests = || TESTS.iter().filter(|test| **test != Test::Offers);
        let all = |actor: &usize| tests().all(|test| self.passes(plan, part, *actor, *test));
        (0..self.actors.len()).filter(all).collect()
    }

    /// For the unsuffixed group the root speaks for its tree, and when it must stay out, for those
    /// who lend to it; a lender must itself be a member. A suffixed group looks at nobody's root.
    fn in_aggregates(&self, part: &Part, filter: &Filter, actor: &Actor<'_>) -> bool {
        let member = |node: &Node| {
            filter.member_of.iter().all(|any| any.iter().any(|uuid| node.in_aggregate(uuid)))
        };
        let barred =
            |node: &Node| filter.forbidden_aggregates.iter().any(|uuid| node.in_aggregate(uuid));
        let (node, root) = (actor.node(), self.tree.root());
        let own = actor.slot == self.slot;
        let belongs = member(node) || (!part.suffixed && own && member(root));
        belongs && !barred(node) && (part.suffixed || !barred(root))
    }
}

/// Whether the root has the traits that roots must have.
pub(crate) fn root_fits(plan: &Plan, tree: &Planted) -> bool {
    let root = tree.root();
    plan.root_required.iter().all(|t| root.has_trait(*t))
        && !plan.root_forbidden.iter().any(|t| root.has_trait(*t))
}

/// Whether anything with this much room at most might serve every part, apart from what is lent.
pub(crate) fn might_fit(plan: &Plan, best: &[(crate::intern::Name, i64)]) -> bool {
    plan.parts
        .iter()
        .flat_map(|part| &part.needs)
        .all(|(class, amount)| plan.lent[*class] || best_of(best, plan.classes[*class]) >= *amount)
}
