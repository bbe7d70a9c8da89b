//! Hosts that offer their CPUs and memory by NUMA cell: the providers of the cells, claims on them, and the move of
//! inventories and allocations between the root and the cells.
//!
//! The cells of a host are direct children of its root, each with the trait `HW_NUMA_ROOT` and an
//! id that is derived from the root's id and the cell's number. A change in the division moves all
//! allocations or none, in the transaction of the host's report. This file must never choose the
//! cells of a guest.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kilonova_engine::{CELL_CLASSES, Inventory, is_of_cell};
use kilonova_ids::{ConsumerId, ProviderId, ResourceClass};
use kilonova_store::{Asked, Tx};
use kilonova_wire::time;

use super::{Allocation, ProviderSpec, report_host};
use crate::db::inventories::InventoryRow;
use crate::db::providers::NewProvider;
use crate::db::{consumers, inventories, providers};
use crate::{Error, World};

/// The id of the provider for a host's NUMA cell.
pub fn cell_provider(root: ProviderId, cell: u32) -> ProviderId {
    let name = format!("{root} NUMA{cell}");
    let id = uuid::Uuid::new_v3(&uuid::Uuid::NAMESPACE_OID, name.as_bytes());
    ProviderId::from_bytes(*id.as_bytes())
}

/// The inventories of a cell by class, in the order of [`CELL_CLASSES`].
pub type CellInventories = [Option<Inventory>; CELL_CLASSES.len()];

/// Cells whose inventories are being read.
#[must_use = "cells are read to claim on them"]
pub struct AskedCells {
    cells: Vec<ProviderId>,
    asked: Vec<Asked>,
}

/// Asks for the inventories of cells.
///
/// # Errors
/// Store errors only; also for [`cells`].
pub fn ask_cells(tx: &mut Tx<'_>, cells: Vec<ProviderId>) -> Result<AskedCells, Error> {
    let asked = inventories::ask_of(tx, &cells)?;
    Ok(AskedCells { cells, asked })
}

/// The inventories of the cells with their usage, in the order passed to [`ask_cells`].
pub fn cells(
    tx: &mut Tx<'_>,
    asked: AskedCells,
) -> Result<Vec<(ProviderId, CellInventories)>, Error> {
    let AskedCells { cells, asked } = asked;
    let mut found: BTreeMap<ProviderId, CellInventories> = BTreeMap::new();
    for placed in inventories::found(tx, asked)? {
        if let Some(at) = CELL_CLASSES.iter().position(|class| placed.row.class == *class) {
            found.entry(placed.provider).or_default()[at] = Some(placed.row.inventory);
        }
    }
    Ok(cells.into_iter().map(|id| (id, found.remove(&id).unwrap_or_default())).collect())
}

/// An allocation of a consumer on a host whose division changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootAllocation {
    /// The consumer.
    pub consumer: ConsumerId,
    /// The class, one of [`CELL_CLASSES`].
    pub class: ResourceClass,
    /// The amount.
    pub amount: i64,
}

/// The values of a root's inventory that an operator may have set.
#[derive(Debug, Clone, PartialEq)]
pub struct OfOperator {
    /// The class.
    pub class: ResourceClass,
    /// The amount that the operator has reserved.
    pub reserved: Option<i64>,
    /// The ratio, which is the operator's unless the host fixes it.
    pub allocation_ratio: f64,
}

/// The values that an operator may have set on a root, by class.
///
/// # Errors
/// Store errors only.
pub fn of_operator(tx: &mut Tx<'_>, root: ProviderId) -> Result<Vec<OfOperator>, Error> {
    let rows = inventories::of_provider(tx, root)?.into_iter();
    Ok(rows
        .map(|row| OfOperator {
            class: row.class,
            reserved: row.operator_reserved,
            allocation_ratio: row.inventory.allocation_ratio,
        })
        .collect())
}

/// The allocations of CPUs and memory on a root. Locks the whole tree against other claims first.
///
/// # Errors
/// Store errors only.
pub fn allocations_of_root(
    tx: &mut Tx<'_>,
    root: ProviderId,
) -> Result<Vec<RootAllocation>, Error> {
    providers::lock_tree(tx, root)?;
    let rows = consumers::on_provider(tx, root)?.into_iter().filter(|row| is_of_cell(&row.class));
    let held = rows.map(|row| RootAllocation {
        consumer: row.consumer,
        class: row.class,
        amount: row.used,
    });
    Ok(held.collect())
}

/// The number of consumers with allocations at the cells of a root. Providers below the root that
/// offer CPUs or memory are cells.
///
/// # Errors
/// Store errors only.
pub fn consumers_at_cells(tx: &mut Tx<'_>, root: ProviderId) -> Result<usize, Error> {
    let stored = inventories::of_root(tx, root)?;
    let is_cell = |(id, own): &(&ProviderId, &Vec<InventoryRow>)| {
        **id != root && own.iter().any(|row| is_of_cell(&row.class))
    };
    let mut consumers = BTreeSet::new();
    for (cell, _) in stored.iter().filter(is_cell) {
        consumers.extend(consumers::on_provider(tx, *cell)?.into_iter().map(|row| row.consumer));
    }
    Ok(consumers.len())
}

/// Divides a host whose report now contains cells below the root. `parts` are the new allocations
/// of each consumer. Together they must be exactly the allocations that [`allocations_of_root`] returned
/// in this transaction. `share` divides the amount that an operator has reserved on the root among
/// the cells, in the same way as the host divides its own reserved amount.
///
/// # Errors
/// [`Error::Taken`] if another provider has the name of a cell; store errors.
pub fn divide(
    tx: &mut Tx<'_>,
    world: &World,
    root: &ProviderSpec,
    children: &[ProviderSpec],
    cells: &[ProviderSpec],
    parts: &[(ConsumerId, Allocation)],
    share: impl Fn(&ResourceClass, i64) -> Vec<i64>,
) -> Result<(), Error> {
    let now = time::now();
    let known: BTreeSet<ProviderId> =
        providers::of_root(tx, root.id)?.into_iter().map(|row| row.id).collect();
    let new: Vec<NewProvider<'_>> = cells
        .iter()
        .filter(|cell| !known.contains(&cell.id))
        .map(|cell| NewProvider {
            reported: true,
            ..NewProvider::new(cell.id, &cell.name, Some(root.id), root.id)
        })
        .collect();
    let asked = providers::ask_insert(tx, &new, now)?;
    let inserted = providers::inserted(tx, asked)?;
    if let Some(taken) = new.iter().find(|one| !inserted.contains(&one.id)) {
        return Err(Error::Taken { id: taken.id, name: taken.name.to_owned() });
    }
    let stored = inventories::of_root(tx, root.id)?;
    let of = |provider| stored.get(&provider).map(Vec::as_slice).unwrap_or_default();
    let of_root = of(root.id);
    let mut rows = Vec::new();
    for (at, cell) in cells.iter().enumerate() {
        let there = of(cell.id);
        for (class, inventory) in &cell.inventories {
            if there.iter().any(|row| row.class == *class) {
                continue;
            }
            let own = of_root.iter().find(|row| row.class == *class);
            let ratio = own.filter(|_| cell.initial_ratios.contains(class));
            let ratio = ratio.map(|row| row.inventory.allocation_ratio);
            let by_operator = own.and_then(|row| row.operator_reserved);
            let by_operator = by_operator
                .map(|reserved| share(class, reserved).get(at).copied().unwrap_or_default());
            let row = InventoryRow {
                class: class.clone(),
                inventory: Inventory {
                    used: 0,
                    allocation_ratio: ratio.unwrap_or(inventory.allocation_ratio),
                    ..*inventory
                },
                reported_reserved: Some(inventory.reserved),
                operator_reserved: by_operator,
                updated_at: now,
            };
            rows.push((cell.id, row));
        }
    }
    inventories::insert(tx, &rows)?;
    let mut moved = Moved::default();
    let mut left: BTreeSet<(ConsumerId, ResourceClass)> = BTreeSet::new();
    for (consumer, part) in parts {
        if left.insert((*consumer, part.class.clone())) {
            consumers::delete_allocation(tx, *consumer, root.id, &part.class)?;
        }
        consumers::add_allocation(tx, *consumer, part.provider, &part.class, part.amount, now)?;
        moved.add(*consumer, root.id, part.provider, &part.class, part.amount);
    }
    moved.record(tx, now)?;
    let mut all = children.to_vec();
    all.extend_from_slice(cells);
    report_host(tx, world, root, &all)
}

/// Ends the division of a host: the root offers CPUs and memory again, and takes over all
/// allocations of the cells. This always succeeds. A root that offers less than its usage accepts
/// no new allocation until it has room.
///
/// # Errors
/// Store errors only.
pub fn unite(
    tx: &mut Tx<'_>,
    world: &World,
    root: &ProviderSpec,
    children: &[ProviderSpec],
) -> Result<(), Error> {
    providers::lock_tree(tx, root.id)?;
    let now = time::now();
    let rows = providers::of_root(tx, root.id)?;
    let stored = inventories::of_root(tx, root.id)?;
    let of_children: BTreeSet<ProviderId> = children.iter().map(|child| child.id).collect();
    let cells: Vec<ProviderId> = rows
        .iter()
        .filter(|row| row.parent == Some(root.id) && row.reported && !of_children.contains(&row.id))
        .map(|row| row.id)
        .filter(|id| stored.get(id).is_some_and(|own| own.iter().any(|row| is_of_cell(&row.class))))
        .collect();
    let mut held: BTreeMap<ResourceClass, Vec<(ProviderId, ConsumerId, i64)>> = BTreeMap::new();
    for cell in &cells {
        for row in consumers::on_provider(tx, *cell)? {
            if is_of_cell(&row.class) {
                held.entry(row.class).or_default().push((*cell, row.consumer, row.used));
            }
        }
    }
    let own = stored.get(&root.id).map(Vec::as_slice).unwrap_or_default();
    let mut moved = Moved::default();
    let mut offered = Vec::new();
    for class in CELL_CLASSES {
        let class = ResourceClass::verbatim(class);
        let reported = root.inventories.iter().find(|(known, _)| *known == class);
        let used = held.get(&class).is_some_and(|held| !held.is_empty());
        let of_cells = cells.iter().filter_map(|cell| stored.get(cell)).flatten();
        let of_cells: Vec<&InventoryRow> = of_cells.filter(|row| row.class == class).collect();
        // Guests may have allocations of a class that the host no longer offers.
        let inventory = match reported {
            Some((_, inventory)) => Inventory {
                // The operator may have set different ratios at the cells; none may be exceeded.
                allocation_ratio: of_cells
                    .iter()
                    .filter(|_| root.initial_ratios.contains(&class))
                    .map(|row| row.inventory.allocation_ratio)
                    .reduce(f64::min)
                    .unwrap_or(inventory.allocation_ratio),
                ..*inventory
            },
            None if used => {
                let total = of_cells.iter().map(|row| row.inventory.total).sum::<i64>().max(1);
                Inventory { reserved: total, ..Inventory::of(total) }
            }
            None => continue,
        };
        let by_operator = of_cells.iter().filter_map(|row| row.operator_reserved);
        let by_operator = by_operator.reduce(i64::saturating_add);
        let row = InventoryRow {
            class: class.clone(),
            inventory,
            reported_reserved: Some(inventory.reserved),
            operator_reserved: by_operator.map(|reserved| reserved.min(inventory.total)),
            updated_at: now,
        };
        let is_new = !own.iter().any(|row| row.class == class);
        if is_new {
            inventories::insert(tx, &[(root.id, row.clone())])?;
        }
        for (cell, consumer, amount) in held.remove(&class).unwrap_or_default() {
            consumers::delete_allocation(tx, consumer, cell, &class)?;
            consumers::add_allocation(tx, consumer, root.id, &class, amount, now)?;
            moved.add(consumer, cell, root.id, &class, amount);
        }
        offered.push(row);
    }
    moved.record(tx, now)?;
    // This follows the usage updates, because it also records whether the usage exceeds the inventory.
    for row in &offered {
        inventories::put(tx, root.id, row, false)?;
    }
    report_host(tx, world, root, children)
}

/// Allocations that have moved between providers of a host. [`Moved::record`] writes the usage and
/// the generations that change with them.
#[derive(Default)]
struct Moved {
    consumers: BTreeSet<ConsumerId>,
    usage: BTreeMap<(ProviderId, ResourceClass), i64>,
}

impl Moved {
    fn add(
        &mut self,
        consumer: ConsumerId,
        from: ProviderId,
        to: ProviderId,
        class: &ResourceClass,
        amount: i64,
    ) {
        self.consumers.insert(consumer);
        *self.usage.entry((from, class.clone())).or_default() -= amount;
        *self.usage.entry((to, class.clone())).or_default() += amount;
    }

    /// Changes the usage, with one statement for each provider and class, and increments the generation of each
    /// consumer once.
    fn record(self, tx: &mut Tx<'_>, now: Timestamp) -> Result<(), Error> {
        for ((provider, class), by) in &self.usage {
            inventories::add_usage(tx, *provider, class, *by)?;
        }
        for consumer in self.consumers {
            consumers::bump(tx, consumer, now)?;
        }
        Ok(())
    }
}
