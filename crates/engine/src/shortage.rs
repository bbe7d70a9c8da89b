//! Finds the provider of a tree that comes nearest to the amounts of a request, and the limits of its inventories that
//! refuse them.
//!
//! This module serves only explanations. It must never decide anything, and a search never uses it.

use std::sync::Arc;

use kilonova_ids::ResourceClass;

use crate::model::Inventory;
use crate::search::{AnchorTree, Part, Plan, Test};

/// The provider of a tree that comes nearest to the amounts that a part requests.
pub(crate) struct Shortage {
    /// The provider's name, unless it is the root of the tree.
    device: Option<Arc<str>>,
    /// Its inventories of the requested classes, each with the requested amount, in the order of the part's needs.
    offers: Vec<(Inventory, i64)>,
    /// The sum of its room over the requested classes, each counted up to the requested amount.
    pub(crate) has: i64,
}

impl Shortage {
    /// Examines the providers that pass the tests before [`Test::Room`]. `None` if no provider does.
    pub(crate) fn of(anchor: &AnchorTree<'_>, plan: &Plan, part: &Part) -> Option<Self> {
        let passes = |index: usize, test| anchor.passes(plan, part, index, test);
        let all = 0..anchor.suppliers.len();
        let offering =
            all.filter(|index| [Test::Tree, Test::Offers].iter().all(|test| passes(*index, *test)));
        let offers = |index: usize| {
            let supplier = &anchor.suppliers[index];
            let inventory =
                move |class: usize| supplier.tree.inventory(supplier.position, plan.classes[class]);
            part.needs.iter().filter_map(move |(class, amount)| Some((inventory(*class)?, *amount)))
        };
        let sums = offering.map(|index| {
            (offers(index).map(|(inventory, amount)| inventory.room().min(amount)).sum(), index)
        });
        // Of providers with equal sums, the first is taken.
        let (has, best): (i64, usize) =
            sums.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
        let supplier = &anchor.suppliers[best];
        let is_root = supplier.slot == anchor.slot && supplier.node().parent.is_none();
        let device = (!is_root).then(|| Arc::clone(&supplier.node().name));
        Some(Self { device, offers: offers(best).collect(), has })
    }

    /// The limits that refuse the amounts, as a predicate: `has only 2 VGPU free on gpu-1`. `None` if no limit does.
    pub(crate) fn predicate(&self, classes: &[&ResourceClass]) -> Option<String> {
        let limits = self.offers.iter().zip(classes);
        let limits =
            limits.filter_map(|((inventory, amount), class)| limit(inventory, *amount, class));
        let limits = limits.collect::<Vec<_>>().join(" and ");
        // If the nearest provider has nothing free, neither has any other, so no provider is named.
        let device = self.device.as_ref().filter(|_| self.has > 0);
        let on = device.map(|name| format!(" on {name}")).unwrap_or_default();
        (!limits.is_empty()).then(|| format!("{limits}{on}"))
    }
}

/// The first limit of an inventory that refuses an amount.
fn limit(inventory: &Inventory, amount: i64, class: &ResourceClass) -> Option<String> {
    let Inventory { min_unit, max_unit, step_size, .. } = inventory;
    if amount > *max_unit {
        return Some(format!("gives one server at most {max_unit} {class} (max_unit)"));
    }
    if amount < *min_unit {
        return Some(format!("gives one server at least {min_unit} {class} (min_unit)"));
    }
    if *step_size > 1 && amount % step_size != 0 {
        return Some(format!("gives {class} in multiples of {step_size} (step_size)"));
    }
    match inventory.room() {
        room if room >= amount => None,
        0 => Some(format!("has no {class} free")),
        room => Some(format!("has only {room} {class} free")),
    }
}
