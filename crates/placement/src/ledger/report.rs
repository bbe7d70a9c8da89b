//! Applies the report of a host to its provider tree. Hosts repeat reports often, and an unchanged
//! report writes nothing: the root stores a fingerprint of the last report, which every other
//! change of the tree clears. If the fingerprint is equal, nothing is compared. A report that
//! leaves something to remove later (an absent device with allocations) stores no fingerprint.
//!
//! Drained providers stay drained. Traits that operators added stay, and so does a `reserved` that
//! they set; for a device it is the minimum, because the part that the host cannot offer is always
//! reserved. A device that disappears while it has allocations keeps its provider, fully reserved,
//! until they are released. Inventories of the root that its children offer now move to them
//! ([`super::move_down`]). Children that no host reported (created through the API) are left alone.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use kilonova_engine::Inventory;
use kilonova_ids::{ProviderId, ResourceClass};
use kilonova_store::Tx;
use kilonova_wire::time;

use super::ProviderSpec;
use super::move_down::move_down;
use crate::db::inventories::InventoryRow;
use crate::db::providers::ProviderRow;
use crate::db::{aggregates, classes, consumers, drains, inventories, providers, traits};
use crate::{Error, World, names};

/// Makes the host's tree match `root` and `children`.
///
/// # Errors
/// Store errors; a unique key violation if another provider has one of the names.
pub fn report_host(
    tx: &mut Tx<'_>,
    world: &World,
    root: &ProviderSpec,
    children: &[ProviderSpec],
) -> Result<(), Error> {
    report(tx, world, root.id, Some(root), children)
}

/// Makes the children of a root match `children`. Name, inventories and traits of the root itself
/// belong to its creator.
///
/// # Errors
/// Like [`report_host`].
pub fn report_below(
    tx: &mut Tx<'_>,
    world: &World,
    root: ProviderId,
    children: &[ProviderSpec],
) -> Result<(), Error> {
    report(tx, world, root, None, children)
}

fn report(
    tx: &mut Tx<'_>,
    world: &World,
    id: ProviderId,
    root: Option<&ProviderSpec>,
    children: &[ProviderSpec],
) -> Result<(), Error> {
    let fingerprint = fingerprint(root, children);
    if providers::report(tx, id)?.is_some_and(|last| last == fingerprint) {
        return Ok(());
    }
    let now = time::now();
    let known: HashMap<ProviderId, ProviderRow> =
        providers::of_root(tx, id)?.into_iter().map(|row| (row.id, row)).collect();
    let drained = drains::of_root(tx, id)?;
    let mut changed = false;
    let specs = || {
        let own = root.into_iter().map(|root| (root, None));
        own.chain(children.iter().map(|child| (child, Some(id))))
    };
    for (spec, parent) in specs() {
        let row = known.get(&spec.id);
        let drained = match row {
            Some(_) => drained.contains(&spec.id),
            None => drains::one(tx, spec.id)?,
        };
        let placed = write_position(tx, spec, parent, id, row, now)?;
        let rule = ReservedRule { drained, device: parent.is_some() };
        changed |= placed | write_contents(tx, spec, rule, now)?;
    }
    if let Some(root) = root {
        changed |= moved_down(tx, root, children, now)?;
    }
    let reported: HashSet<ProviderId> = children.iter().map(|child| child.id).collect();
    for row in known.values() {
        if row.id != id && row.reported && !reported.contains(&row.id) {
            changed |= withdraw_provider(tx, row, now)?;
        }
    }
    if changed {
        world.tree_changed(tx, id)?;
    }
    let offered: usize = specs().map(|(spec, _)| spec.inventories.len()).sum();
    if providers::reported_below(tx, id)? == (specs().count() as i64, offered as i64) {
        providers::set_report(tx, id, &fingerprint)?;
    }
    Ok(())
}

/// Moves allocations of classes that the children offer now from the root to the children.
fn moved_down(
    tx: &mut Tx<'_>,
    root: &ProviderSpec,
    children: &[ProviderSpec],
    now: Timestamp,
) -> Result<bool, Error> {
    let (old, moved) = move_down(tx, root, children, now)?;
    let mut changed = moved;
    for row in old {
        changed |= withdraw(tx, root.id, row, now)?;
    }
    if changed {
        providers::bump(tx, root.id, now)?;
    }
    Ok(changed)
}

/// The fingerprint of a report.
fn fingerprint(root: Option<&ProviderSpec>, children: &[ProviderSpec]) -> String {
    let reported = format!("{root:?}{children:?}");
    uuid::Uuid::new_v3(&uuid::Uuid::NAMESPACE_OID, reported.as_bytes()).to_string()
}

/// Writes name and position in the tree.
fn write_position(
    tx: &mut Tx<'_>,
    spec: &ProviderSpec,
    parent: Option<ProviderId>,
    root: ProviderId,
    known: Option<&ProviderRow>,
    now: Timestamp,
) -> Result<bool, Error> {
    let mut placed = false;
    match known {
        None => {
            if !providers::insert(tx, spec.id, &spec.name, parent, root, true, now)? {
                return Err(Error::Taken { id: spec.id, name: spec.name.clone() });
            }
            placed = true;
        }
        Some(row) => {
            if row.name != spec.name {
                providers::place(tx, spec.id, &spec.name, row.parent, row.root, now)?;
                placed = true;
            }
            if !row.reported {
                providers::mark_reported(tx, spec.id)?;
                placed = true;
            }
        }
    }
    Ok(placed)
}

/// The rule that determines `reserved`.
#[derive(Clone, Copy)]
pub(super) struct ReservedRule {
    pub drained: bool,
    pub device: bool,
}

impl ReservedRule {
    pub fn of(self, by_operator: Option<i64>, reported: i64, total: i64) -> i64 {
        match by_operator {
            _ if self.drained => total,
            Some(number) if self.device => number.max(reported),
            Some(number) => number,
            None => reported,
        }
    }
}

/// Writes inventories and traits, which clients see.
fn write_contents(
    tx: &mut Tx<'_>,
    spec: &ProviderSpec,
    rule: ReservedRule,
    now: Timestamp,
) -> Result<bool, Error> {
    let visible = write_inventories(tx, spec, rule, now)? | write_traits(tx, spec, now)?;
    if visible {
        providers::bump(tx, spec.id, now)?;
    }
    Ok(visible)
}

/// Writes the inventories.
fn write_inventories(
    tx: &mut Tx<'_>,
    spec: &ProviderSpec,
    rule: ReservedRule,
    now: Timestamp,
) -> Result<bool, Error> {
    let reserved = |by_operator: Option<i64>, reported: &Inventory| {
        rule.of(by_operator, reported.reserved, reported.total)
    };
    let mut old: HashMap<ResourceClass, InventoryRow> = inventories::of_provider(tx, spec.id)?
        .into_iter()
        .map(|row| (row.class.clone(), row))
        .collect();
    let mut changed = false;
    for (class, reported) in &spec.inventories {
        let Some(before) = old.remove(class) else {
            if !names::is_standard_class(class) {
                classes::ensure(tx, class, now)?;
                classes::pin(tx, class)?;
            }
            let row = InventoryRow {
                class: class.clone(),
                inventory: Inventory { reserved: reserved(None, reported), ..*reported },
                reported_reserved: Some(reported.reserved),
                operator_reserved: None,
                updated_at: now,
            };
            inventories::put(tx, spec.id, &row, true)?;
            changed = true;
            continue;
        };
        let wanted = Inventory {
            reserved: reserved(before.operator_reserved, reported),
            used: before.inventory.used,
            ..*reported
        };
        if same(&wanted, &before.inventory) && before.reported_reserved == Some(reported.reserved) {
            continue;
        }
        let row = InventoryRow {
            class: class.clone(),
            inventory: wanted,
            reported_reserved: Some(reported.reserved),
            operator_reserved: before.operator_reserved,
            updated_at: now,
        };
        inventories::put(tx, spec.id, &row, false)?;
        changed = true;
    }
    for row in old.into_values().filter(|row| row.reported_reserved.is_some()) {
        changed |= withdraw(tx, spec.id, row, now)?;
    }
    Ok(changed)
}

/// Removes an inventory that the host stopped offering, or reserves all of it while it is in use.
fn withdraw(
    tx: &mut Tx<'_>,
    provider: ProviderId,
    mut row: InventoryRow,
    now: Timestamp,
) -> Result<bool, Error> {
    if row.inventory.used == 0 {
        return Ok(inventories::delete_idle(tx, provider, &row.class)?);
    }
    let total = row.inventory.total;
    if row.inventory.reserved == total && row.reported_reserved == Some(total) {
        return Ok(false);
    }
    row.inventory.reserved = total;
    row.reported_reserved = Some(total);
    row.updated_at = now;
    inventories::put(tx, provider, &row, false)?;
    Ok(true)
}

/// Writes the traits.
fn write_traits(tx: &mut Tx<'_>, spec: &ProviderSpec, now: Timestamp) -> Result<bool, Error> {
    let mut old: HashMap<String, bool> = traits::of_provider(tx, spec.id)?.into_iter().collect();
    let mut changed = false;
    for name in &spec.traits {
        match old.remove(name) {
            Some(_) => {}
            None => {
                if !names::is_standard_trait(name) {
                    traits::ensure(tx, name, now)?;
                }
                traits::add(tx, spec.id, name, true)?;
                changed = true;
            }
        }
    }
    for (name, _) in old.into_iter().filter(|(_, reported)| *reported) {
        traits::remove(tx, spec.id, &name)?;
        changed = true;
    }
    Ok(changed)
}

/// Deletes a provider that its host no longer reports, or reserves all of it while it has
/// allocations or children. Returns whether anything changed.
fn withdraw_provider(tx: &mut Tx<'_>, row: &ProviderRow, now: Timestamp) -> Result<bool, Error> {
    if !consumers::any_on(tx, row.id)? && !providers::has_children(tx, row.id)? {
        delete(tx, row.id)?;
        return Ok(true);
    }
    let mut changed = false;
    for inventory in inventories::of_provider(tx, row.id)? {
        changed |= withdraw(tx, row.id, inventory, now)?;
    }
    if changed {
        providers::bump(tx, row.id, now)?;
    }
    Ok(changed)
}

/// Deletes a provider without allocations, with its inventories, traits and aggregates.
pub(crate) fn delete(tx: &mut Tx<'_>, id: ProviderId) -> Result<(), Error> {
    inventories::delete_all(tx, id)?;
    traits::clear(tx, id)?;
    aggregates::clear(tx, id)?;
    Ok(providers::delete(tx, id)?)
}

fn same(a: &Inventory, b: &Inventory) -> bool {
    (a.total, a.reserved, a.min_unit, a.max_unit, a.step_size)
        == (b.total, b.reserved, b.min_unit, b.max_unit, b.step_size)
        && a.allocation_ratio == b.allocation_ratio
}
