//! What a host offers, made so. A report that says what is known already writes nothing: hosts
//! repeat themselves often. So the root keeps a mark of the last report, which every other change of
//! its tree wipes off; with the same mark nothing is even compared. What a report left to be removed
//! later (a device that is gone and held) has no mark.
//!
//! What is drained stays so. Operators' hands are respected: traits that they added stay, and a `reserved` that they set
//! stays. Of a device it is the least: what the host cannot give out is reserved whatever an
//! operator says. A device that vanished while somebody holds it keeps its provider, fully reserved, until
//! it is drained. What the root had of a class that its children offer now moves to them
//! ([`super::move_down`]). Children that no host reported (made through the API) are nobody's business here.

use std::collections::{HashMap, HashSet};

use kilonova_engine::Inventory;
use kilonova_ids::ProviderId;
use kilonova_store::{Tx, params};
use kilonova_wire::time::now_micros;

use super::ProviderSpec;
use super::move_down::move_down;
use crate::db::inventories::InventoryRow;
use crate::db::providers::ProviderRow;
use crate::db::{aggregates, classes, consumers, drains, inventories, providers, traits};
use crate::{Error, World, names};

/// Makes the host's tree as `root` and `children` say.
///
/// # Errors
/// Of the store; a unique key when another provider has one of the names.
pub fn report_host(
    tx: &mut Tx<'_>,
    world: &World,
    root: &ProviderSpec,
    children: &[ProviderSpec],
) -> Result<(), Error> {
    report(tx, world, root.id, Some(root), children)
}

/// Makes what is below a root as `children` say, and leaves the root itself to whoever made it: its name,
/// inventories and traits.
///
/// # Errors
/// As [`report_host`].
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
    let mark = mark(root, children);
    if providers::report(tx, id)?.is_some_and(|last| last == mark) {
        return Ok(());
    }
    let now = now_micros();
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
        let placed = place(tx, spec, parent, id, row, now)?;
        let rule = Reserved { drained, device: parent.is_some() };
        changed |= placed | describe_all(tx, spec, rule, now)?;
    }
    if let Some(root) = root {
        changed |= moved_down(tx, root, children, now)?;
    }
    let reported: HashSet<ProviderId> = children.iter().map(|child| child.id).collect();
    for row in known.values() {
        if row.id != id && row.reported && !reported.contains(&row.id) {
            changed |= vanished(tx, row, now)?;
        }
    }
    if changed {
        world.tree_changed(tx, id)?;
    }
    let offered: usize = specs().map(|(spec, _)| spec.inventories.len()).sum();
    if providers::reported_below(tx, id)? == (specs().count() as i64, offered as i64) {
        tx.execute(providers::SET_REPORT, params![id, mark])?;
    }
    Ok(())
}

/// What the root had of classes that its children offer now is theirs.
fn moved_down(
    tx: &mut Tx<'_>,
    root: &ProviderSpec,
    children: &[ProviderSpec],
    now: i64,
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

/// What tells one report from another.
fn mark(root: Option<&ProviderSpec>, children: &[ProviderSpec]) -> String {
    let said = format!("{root:?}{children:?}");
    uuid::Uuid::new_v3(&uuid::Uuid::NAMESPACE_OID, said.as_bytes()).to_string()
}

/// Name and place in the tree.
fn place(
    tx: &mut Tx<'_>,
    spec: &ProviderSpec,
    parent: Option<ProviderId>,
    root: ProviderId,
    known: Option<&ProviderRow>,
    now: i64,
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
                tx.execute(
                    providers::PLACE,
                    params![spec.id, &spec.name, row.parent, row.root, now],
                )?;
                placed = true;
            }
            if !row.reported {
                tx.execute(providers::MARK_REPORTED, params![spec.id])?;
                placed = true;
            }
        }
    }
    Ok(placed)
}

/// How `reserved` follows from what is said.
#[derive(Clone, Copy)]
pub(super) struct Reserved {
    pub drained: bool,
    pub device: bool,
}

impl Reserved {
    pub fn of(self, by_operator: Option<i64>, said: i64, total: i64) -> i64 {
        match by_operator {
            _ if self.drained => total,
            Some(number) if self.device => number.max(said),
            Some(number) => number,
            None => said,
        }
    }
}

/// What clients see of a provider: its inventories and traits.
fn describe_all(
    tx: &mut Tx<'_>,
    spec: &ProviderSpec,
    rule: Reserved,
    now: i64,
) -> Result<bool, Error> {
    let visible = offer(tx, spec, rule, now)? | describe(tx, spec, now)?;
    if visible {
        providers::bump(tx, spec.id, now)?;
    }
    Ok(visible)
}

/// Inventories.
fn offer(tx: &mut Tx<'_>, spec: &ProviderSpec, rule: Reserved, now: i64) -> Result<bool, Error> {
    let reserved = |by_operator: Option<i64>, said: &Inventory| {
        rule.of(by_operator, said.reserved, said.total)
    };
    let mut old: HashMap<String, InventoryRow> = inventories::of_provider(tx, spec.id)?
        .into_iter()
        .map(|row| (row.class.clone(), row))
        .collect();
    let mut changed = false;
    for (class, said) in &spec.inventories {
        let Some(before) = old.remove(class) else {
            if !names::is_standard_class(class) {
                classes::ensure(tx, class, now)?;
                classes::pin(tx, class)?;
            }
            let row = InventoryRow {
                class: class.clone(),
                inventory: Inventory { reserved: reserved(None, said), ..*said },
                reported_reserved: Some(said.reserved),
                operator_reserved: None,
                updated_at: now,
            };
            inventories::put(tx, spec.id, &row, true)?;
            changed = true;
            continue;
        };
        let wanted = Inventory {
            reserved: reserved(before.operator_reserved, said),
            used: before.inventory.used,
            ..*said
        };
        if same(&wanted, &before.inventory) && before.reported_reserved == Some(said.reserved) {
            continue;
        }
        let row = InventoryRow {
            class: class.clone(),
            inventory: wanted,
            reported_reserved: Some(said.reserved),
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

/// An inventory that is no longer offered: gone, or reserved to its last unit while in use.
fn withdraw(
    tx: &mut Tx<'_>,
    provider: ProviderId,
    mut row: InventoryRow,
    now: i64,
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

/// Traits.
fn describe(tx: &mut Tx<'_>, spec: &ProviderSpec, now: i64) -> Result<bool, Error> {
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
        tx.execute(traits::REMOVE, params![spec.id, name])?;
        changed = true;
    }
    Ok(changed)
}

fn vanished(tx: &mut Tx<'_>, row: &ProviderRow, now: i64) -> Result<bool, Error> {
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

/// Removes a provider on which nothing is held, with what hangs on it.
pub(crate) fn delete(tx: &mut Tx<'_>, id: ProviderId) -> Result<(), Error> {
    for sql in [inventories::DELETE_ALL, traits::CLEAR, aggregates::CLEAR, providers::DELETE] {
        tx.execute(sql, params![id])?;
    }
    Ok(())
}

fn same(a: &Inventory, b: &Inventory) -> bool {
    (a.total, a.reserved, a.min_unit, a.max_unit, a.step_size)
        == (b.total, b.reserved, b.min_unit, b.max_unit, b.step_size)
        && a.allocation_ratio == b.allocation_ratio
}
