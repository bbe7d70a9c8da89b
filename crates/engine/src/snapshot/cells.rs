//! Trees whose NUMA cells are providers, with the cells folded into the root.
//!
//! A host may offer its CPUs and memory as one provider for each NUMA cell, below its root. A guest
//! without a topology uses any cells, and a guest with a topology gets its cells in the transaction
//! of its claim. A search for hosts therefore needs only the sums. A folded tree has them on the
//! root, like the tree of a host that is not divided. All providers keep their positions. A folded
//! tree must never be shown as the content of the database.

use std::sync::Arc;

use kilonova_ids::{ProviderId, ResourceClass};

use super::{CompactTree, Forest, Snapshot};
use crate::intern::{Name, Names, UNKNOWN};
use crate::model::{Inventory, Provider, Tree};

/// The trait of a provider that is a NUMA cell of a host.
pub const CELL_TRAIT: &str = "HW_NUMA_ROOT";
/// The classes that a divided host offers by cell.
pub const CELL_CLASSES: [&str; 3] = ["MEMORY_MB", "PCPU", "VCPU"];

/// True if a divided host offers the class by cell.
pub fn is_of_cell(class: &ResourceClass) -> bool {
    CELL_CLASSES.contains(&class.as_str())
}

impl Snapshot {
    /// The NUMA cells of a tree that is divided: its root offers no CPUs and no memory, and children with [`CELL_TRAIT`]
    /// do. Empty for every other tree. The snapshot must not be folded.
    pub fn cells(&self, root: ProviderId) -> Vec<ProviderId> {
        let Some(tree) = self.roots.get(root).and_then(|slot| self.forest.get(slot)) else {
            return Vec::new();
        };
        cells(tree, &self.names).into_iter().map(|position| tree.nodes()[position].id).collect()
    }

    /// This snapshot with the cells of divided trees folded into their roots; `None` if no tree is divided. `before` is
    /// the result for an earlier snapshot of the same forest, and `changed` contains the roots of the trees that may
    /// differ. Without `before` all trees are examined.
    pub fn folded(&self, before: Option<&Self>, changed: &[ProviderId]) -> Option<Self> {
        let mut folded = self.clone();
        match before {
            None => {
                for slot in 0..self.forest.slots() {
                    let tree = self.forest.get(slot);
                    if tree.is_some_and(|tree| !cells(tree, &self.names).is_empty()) {
                        self.fold_slot(&mut folded.forest, slot);
                    }
                }
            }
            Some(before) => {
                folded.forest = before.forest.clone();
                folded.forest.copy_slots_from(&self.forest);
                for root in changed {
                    let (was, now) = (before.roots.get(*root), self.roots.get(*root));
                    for slot in was.into_iter().chain(now.filter(|now| Some(*now) != was)) {
                        self.fold_slot(&mut folded.forest, slot);
                    }
                }
            }
        }
        (folded.forest.folded() > 0).then_some(folded)
    }

    /// Puts the tree of a slot into `forest`, which has the same slots. Folds the tree if it is
    /// divided.
    fn fold_slot(&self, forest: &mut Forest, slot: super::Slot) {
        let tree = self.forest.arc(slot);
        let divided = tree.as_deref().map(|tree| (tree, cells(tree, &self.names)));
        match divided.and_then(|(tree, cells)| fold(tree, &cells, &self.names)) {
            Some(folded) => forest.set_from(slot, Some(Arc::new(folded)), true),
            None => forest.set_from(slot, tree, false),
        }
    }

    /// The position of the provider whose inventory serves a class of `node`: the root for a cell
    /// of a folded tree, otherwise `node` itself.
    pub(super) fn holder(&self, slot: super::Slot, node: usize, class: Name) -> usize {
        let Some(tree) = self.forest.get(slot) else { return node };
        let is_cell = || tree.nodes()[node].has_trait(self.names.traits.find(CELL_TRAIT));
        match tree.inventory(node, class) {
            None if node > 0 && is_cell() && tree.inventory(0, class).is_some() => 0,
            _ => node,
        }
    }
}

/// The positions of the cells of a divided tree; empty if it is not divided.
fn cells(tree: &CompactTree, names: &Names) -> Vec<usize> {
    let wanted = names.traits.find(CELL_TRAIT);
    if wanted == UNKNOWN {
        return Vec::new();
    }
    let classes = CELL_CLASSES.map(|class| names.classes.find(class));
    let offers = |node: usize| classes.iter().any(|class| tree.inventory(node, *class).is_some());
    let is_cell = |node: &usize| {
        let one = &tree.nodes()[*node];
        one.parent == Some(0) && one.has_trait(wanted) && offers(*node)
    };
    let found: Vec<usize> = (1..tree.nodes().len()).filter(is_cell).collect();
    if found.is_empty() || offers(0) { Vec::new() } else { found }
}

/// The tree with the inventories of these cells on its root; `None` if there are no cells.
fn fold(tree: &CompactTree, cells: &[usize], names: &Names) -> Option<CompactTree> {
    if cells.is_empty() {
        return None;
    }
    let mut sums: Vec<(ResourceClass, Vec<Inventory>)> = Vec::new();
    let mut providers: Vec<Provider> = tree.providers(names).collect();
    for cell in cells {
        let provider = providers.get_mut(*cell)?;
        let own = std::mem::take(&mut provider.inventories);
        for (class, inventory) in own {
            if !is_of_cell(&class) {
                provider.inventories.push((class, inventory));
                continue;
            }
            match sums.iter_mut().find(|(known, _)| *known == class) {
                Some((_, all)) => all.push(inventory),
                None => sums.push((class, vec![inventory])),
            }
        }
    }
    let root = providers.first_mut()?;
    root.inventories.extend(sums.into_iter().map(|(class, all)| (class, sum(&all))));
    root.inventories.sort_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
    // The names already include those of this tree.
    CompactTree::build(Tree { providers }, &mut names.clone())
}

/// One inventory that admits as much as several inventories together, if requested one unit at a
/// time.
fn sum(all: &[Inventory]) -> Inventory {
    let add = |part: fn(&Inventory) -> i64| all.iter().map(part).fold(0_i64, i64::saturating_add);
    let free = add(|one| one.capacity().saturating_sub(one.used).max(0));
    let (total, reserved, used) =
        (add(|one| one.total), add(|one| one.reserved), add(|one| one.used));
    let most = all.iter().map(|one| one.max_unit).max().unwrap_or(total).max(0);
    let first = all.first().map_or(1.0, |one| one.allocation_ratio);
    let mut sum = Inventory {
        total,
        reserved,
        min_unit: 1,
        max_unit: most.min(total),
        step_size: 1,
        allocation_ratio: first,
        used,
    };
    // The sums alone would be wrong: a cell with more usage than capacity must not reduce the free
    // amount of the others, and the capacity of each cell is rounded down separately. The ratio
    // corrects both.
    let wanted = used.saturating_add(free);
    if sum.capacity() != wanted {
        if total > reserved {
            sum.allocation_ratio = (wanted as f64 + 0.5) / (total - reserved) as f64;
        } else {
            (sum.reserved, sum.allocation_ratio) = (0, (wanted as f64 + 0.5) / total.max(1) as f64);
        }
    }
    sum
}
