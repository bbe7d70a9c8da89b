//! Conditions that require a common trait: checks whether the providers picked for some parts can all
//! have the same one of certain traits.
//!
//! Like the other checks of a search, these err towards "still possible" while any part is open, and are exact
//! afterwards.

use std::collections::BTreeSet;

use super::plan::Plan;
use super::reach::AnchorTree;
use super::solve::Solver;
use crate::intern::Name;

/// A condition that requires a common trait, applied to one tree.
#[derive(Debug)]
pub(super) struct AlikeSet {
    /// The traits that some provider of the tree has.
    traits: Vec<Common>,
    whole: bool,
}

/// A trait that the picks may have in common.
#[derive(Debug)]
struct Common {
    /// By provider: whether it has the trait.
    has: Vec<bool>,
    /// If the parts must take all of the tree's providers with the trait: those that offer a requested class.
    members: Vec<usize>,
}

impl AlikeSet {
    /// The conditions of a plan.
    pub(super) fn all(plan: &Plan, anchor: &AnchorTree<'_>) -> Vec<Self> {
        let set = |(number, alike): (usize, &super::plan::AlikePlan)| {
            let parts = || plan.parts.iter().filter(|part| part.alike.contains(&number));
            let needs = || parts().flat_map(|part| &part.needs);
            let offers = |at: usize| {
                let supplier = &anchor.suppliers[at];
                let has = |class: usize| {
                    supplier.tree.inventory(supplier.position, plan.classes[class]).is_some()
                };
                supplier.slot == anchor.slot && needs().any(|(class, _)| has(*class))
            };
            let common = |name: Name| {
                let has: Vec<bool> =
                    anchor.suppliers.iter().map(|one| one.node().has_trait(name)).collect();
                let members = (0..has.len()).filter(|at| alike.whole && has[*at] && offers(*at));
                let members = members.collect();
                Common { has, members }
            };
            // Only this tree's traits: the whole cloud may have many more.
            let here = anchor.suppliers.iter().flat_map(|one| one.node().traits.iter().copied());
            let is_allowed = |name: &Name| {
                alike.traits.binary_search(name).is_ok()
                    && (!alike.vacant || is_vacant(anchor, *name))
            };
            let names: BTreeSet<Name> = here.filter(is_allowed).collect();
            Self { traits: names.into_iter().map(common).collect(), whole: alike.whole }
        };
        plan.alike.iter().enumerate().map(set).collect()
    }

    /// For each trait, whether a provider has it.
    pub(super) fn traits_of(&self, supplier: usize) -> impl Iterator<Item = bool> {
        self.traits.iter().map(move |common| common.has[supplier])
    }
}

/// True if all of the tree's own providers with a trait are unused.
fn is_vacant(anchor: &AnchorTree<'_>, name: Name) -> bool {
    let own = anchor.suppliers.iter().filter(|one| one.slot == anchor.slot);
    own.filter(|one| one.node().has_trait(name)).all(|one| {
        let mut inventories = one.tree.inventories(one.position);
        inventories.all(|(_, inventory)| inventory.used == 0)
    })
}

impl Solver<'_> {
    /// True if the picked providers have a trait in common that the providers of the open parts may have too.
    /// With `far`, also checks the remaining capacity of the providers with the trait.
    pub(super) fn can_be_alike(&self, plan: &Plan, set: usize, far: bool) -> bool {
        if self.relaxed.alike {
            return true;
        }
        let inside = |depth: &usize| plan.parts[self.order[*depth]].alike.contains(&set);
        let picked: Vec<usize> = (0..self.picks.len()).filter(inside).collect();
        let open: Vec<usize> = (self.picks.len()..self.order.len()).filter(inside).collect();
        if picked.is_empty() && open.is_empty() {
            return true;
        }
        let AlikeSet { traits, whole } = &self.alike[set];
        traits.iter().any(|common| {
            let may_take = |depth: usize, supplier: usize| {
                common.has[supplier] && self.has_room(plan, depth, supplier)
            };
            let has_choice = |depth: &usize| {
                self.choices[*depth].iter().any(|supplier| may_take(*depth, *supplier))
            };
            let is_left = |member: &&usize| picked.iter().all(|at| self.picks[*at] != **member);
            picked.iter().all(|depth| common.has[self.picks[*depth]])
                && open.iter().all(has_choice)
                && (!whole || common.members.iter().filter(is_left).count() <= open.len())
                && (!far || !self.is_short(plan, &open, common))
        })
    }

    /// True if the open parts request more than the providers with a trait have left.
    fn is_short(&self, plan: &Plan, open: &[usize], common: &Common) -> bool {
        let mut suppliers: Vec<usize> =
            open.iter().flat_map(|depth| &self.choices[*depth]).copied().collect();
        suppliers.sort_unstable();
        suppliers.dedup();
        suppliers.retain(|supplier| common.has[*supplier]);
        let part = |depth: &usize| &plan.parts[self.order[*depth]];
        let alone = open.iter().filter(|depth| part(depth).suffixed).count();
        let vacant = suppliers.iter().filter(|supplier| self.holds[**supplier] == 0).count();
        if plan.isolate && !self.relaxed.isolate && alone > vacant {
            return true;
        }
        let is_short_of = |class: usize| {
            let needs = open.iter().flat_map(|depth| &part(depth).needs);
            let of_class = needs.filter(|(known, _)| *known == class).map(|(_, amount)| *amount);
            let wanted = of_class.fold(0_i64, i64::saturating_add);
            let rooms =
                suppliers.iter().map(|one| self.rooms[one * plan.classes.len() + class].max(0));
            wanted > rooms.fold(0_i64, i64::saturating_add)
        };
        !self.relaxed.room && (0..plan.classes.len()).any(is_short_of)
    }
}
