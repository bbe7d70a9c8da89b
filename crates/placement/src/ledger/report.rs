//! Applies the report of a host to its provider tree. Hosts repeat reports often, and an unchanged
//! report writes nothing: the root stores a fingerprint of the last report, which every other
//! change to the tree clears. A report with the same fingerprint is not compared. A report that
//! leaves something to remove later (an absent device with allocations) stores no fingerprint.
//!
//! A report keeps the changes of operators. Drained providers stay drained, and added traits stay. So does an
//! `allocation_ratio`, if the host reports one only for new inventories. A `reserved` that an operator set stays too;
//! for a device it is only a minimum, because the amount that the host cannot offer is always reserved.
//!
//! A device that disappears while it has allocations keeps its provider, fully reserved, until they are released. Its
//! location traits are removed, because another device may now be in its place. Inventories of the root that its
//! children now offer move to them ([`super::move_down`]). Children that no host reported (created through the API) are
//! left unchanged.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use kilonova_engine::{Inventory, Provider, Tree};
use kilonova_ids::{ProviderId, ResourceClass, nearness};
use kilonova_store::Tx;
use kilonova_wire::time;

use super::ProviderSpec;
use super::move_down::{is_below, move_down};
use crate::db::inventories::InventoryRow;
use crate::db::providers::{NewProvider, ProviderRow};
use crate::db::{aggregates, classes, consumers, drains, inventories, providers, traits};
use crate::{Error, World, names};

/// Makes the host's tree match `root` and `children`.
///
/// # Errors
/// Store errors. If another provider has one of the names: [`Error::Taken`] for a new provider, a
/// unique key violation for a renamed one.
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
    let mut changed = false;
    let specs = || {
        let own = root.into_iter().map(|root| (root, None));
        own.chain(children.iter().map(|child| (child, Some(id))))
    };
    let mut tree = StoredTree::read(tx, id, || specs().map(|(spec, _)| spec))?;
    if let Some(root) = root
        && tree.providers.is_empty()
    {
        return write_new(tx, world, root, children, &tree.drained, &fingerprint, now);
    }
    let own = tree.inventories.get(&id).map_or(&[][..], Vec::as_slice);
    let offered: Vec<ResourceClass> = own.iter().map(|row| row.class.clone()).collect();
    changed |= write_positions(tx, specs(), id, &tree.providers, now)?;
    let mut new = NewRows::default();
    for (spec, parent) in specs() {
        let rule =
            ReservedRule { drained: tree.drained.contains(&spec.id), device: parent.is_some() };
        let inventories = tree.inventories.remove(&spec.id).unwrap_or_default();
        let traits = tree.traits.remove(&spec.id).unwrap_or_default();
        changed |= write_contents(tx, spec, inventories, traits, rule, &mut new, now)?;
    }
    new.write(tx, now)?;
    if let Some(root) = root
        && offered.iter().any(|class| is_below(root, children, class))
    {
        changed |= moved_down(tx, root, children, now)?;
    }
    let reported: HashSet<ProviderId> = children.iter().map(|child| child.id).collect();
    for row in tree.providers.values() {
        if row.id != id && row.reported && !reported.contains(&row.id) {
            let traits = tree.traits.remove(&row.id).unwrap_or_default();
            changed |= withdraw_provider(tx, row, traits, now)?;
        }
    }
    let stored = providers::ask_reported_below(tx, id)?;
    if changed {
        world.tree_changed(tx, id)?;
    }
    let reported: usize = specs().map(|(spec, _)| spec.inventories.len()).sum();
    if providers::reported_below(tx, stored)? == (specs().count() as i64, reported as i64) {
        providers::set_report(tx, id, &fingerprint)?;
    }
    Ok(())
}

/// Writes the first report of a host, whose tree has no rows yet. The in-memory tree is built from the written values,
/// so nothing is reread and no row is written twice. As with [`report`], each provider with contents then has
/// generation 1.
fn write_new(
    tx: &mut Tx<'_>,
    world: &World,
    root: &ProviderSpec,
    children: &[ProviderSpec],
    drained: &HashSet<ProviderId>,
    fingerprint: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let specs = || {
        let below = children.iter().map(|child| (child, Some(root.id)));
        std::iter::once((root, None)).chain(below)
    };
    let positions: Vec<NewProvider<'_>> = specs()
        .map(|(spec, parent)| NewProvider {
            reported: true,
            generation: i64::from(!spec.inventories.is_empty() || !spec.traits.is_empty()),
            report: parent.is_none().then_some(fingerprint),
            ..NewProvider::new(spec.id, &spec.name, parent, root.id)
        })
        .collect();
    insert(tx, &positions, now)?;
    let mut new = NewRows::default();
    for (spec, parent) in specs() {
        let rule = ReservedRule { drained: drained.contains(&spec.id), device: parent.is_some() };
        write_contents(tx, spec, Vec::new(), HashMap::new(), rule, &mut new, now)?;
    }
    inventories::insert(tx, &new.inventories)?;
    traits::report(tx, &new.traits, now)?;
    world.tree_added(tx, root.id, new_tree(specs(), &new, now))
}

/// The in-memory form of a tree that consists of these rows only. A host may have thousands of providers, so the rows
/// are grouped in one pass.
fn new_tree<'a>(
    specs: impl Iterator<Item = (&'a ProviderSpec, Option<ProviderId>)>,
    rows: &NewRows<'_>,
    now: Timestamp,
) -> Tree {
    let mut inventories: HashMap<ProviderId, Vec<(ResourceClass, Inventory)>> = HashMap::new();
    for (id, row) in &rows.inventories {
        let inventory = Inventory { used: 0, ..row.inventory };
        inventories.entry(*id).or_default().push((row.class.clone(), inventory));
    }
    let mut traits: HashMap<ProviderId, Vec<Arc<str>>> = HashMap::new();
    for (id, name) in &rows.traits {
        // Already sorted, because each provider's traits come from a sorted set.
        traits.entry(*id).or_default().push(Arc::from(*name));
    }
    let provider = |(spec, parent): (&ProviderSpec, Option<ProviderId>)| {
        let mut inventories = inventories.remove(&spec.id).unwrap_or_default();
        inventories.sort_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
        Provider {
            id: spec.id,
            name: spec.name.as_str().into(),
            parent,
            version: now.as_microsecond(),
            inventories,
            traits: traits.remove(&spec.id).unwrap_or_default(),
            aggregates: Vec::new(),
        }
    };
    Tree { providers: specs.map(provider).collect() }
}

/// The rows of a tree, read before the first write, in two round trips regardless of its size.
struct StoredTree {
    providers: HashMap<ProviderId, ProviderRow>,
    inventories: HashMap<ProviderId, Vec<InventoryRow>>,
    traits: HashMap<ProviderId, HashMap<String, bool>>,
    /// Drained providers, including reported ones that do not exist yet.
    drained: HashSet<ProviderId>,
}

impl StoredTree {
    fn read<'a, S: Iterator<Item = &'a ProviderSpec>>(
        tx: &mut Tx<'_>,
        root: ProviderId,
        reported: impl Fn() -> S,
    ) -> Result<Self, Error> {
        drains::expect_of_root(tx, root)?;
        inventories::expect_of_root(tx, root)?;
        traits::expect_of_root(tx, root)?;
        let known = providers::of_root(tx, root)?;
        let mut tree = Self {
            providers: known.into_iter().map(|row| (row.id, row)).collect(),
            inventories: inventories::of_root(tx, root)?,
            traits: traits::of_root(tx, root)?,
            drained: drains::of_root(tx, root)?,
        };
        let new: Vec<ProviderId> =
            reported().map(|spec| spec.id).filter(|id| !tree.providers.contains_key(id)).collect();
        tree.drained.extend(drains::of(tx, &new)?);
        Ok(tree)
    }
}

/// Moves allocations from the root to the children, for classes that only the children now offer.
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
        providers::defer_bump(tx, root.id, now)?;
    }
    Ok(changed)
}

/// The fingerprint of a report.
fn fingerprint(root: Option<&ProviderSpec>, children: &[ProviderSpec]) -> String {
    let reported = format!("{root:?}{children:?}");
    uuid::Uuid::new_v3(&uuid::Uuid::NAMESPACE_OID, reported.as_bytes()).to_string()
}

/// Writes names and positions in the tree. Returns whether anything changed.
fn write_positions<'a>(
    tx: &mut Tx<'_>,
    specs: impl Iterator<Item = (&'a ProviderSpec, Option<ProviderId>)>,
    root: ProviderId,
    known: &HashMap<ProviderId, ProviderRow>,
    now: Timestamp,
) -> Result<bool, Error> {
    let mut placed = false;
    let mut new = Vec::new();
    for (spec, parent) in specs {
        let Some(row) = known.get(&spec.id) else {
            let (id, name) = (spec.id, spec.name.as_str());
            new.push(NewProvider { reported: true, ..NewProvider::new(id, name, parent, root) });
            continue;
        };
        if row.name != spec.name {
            providers::set_name_and_position(tx, spec.id, &spec.name, row.parent, row.root, now)?;
            placed = true;
        }
        if !row.reported {
            providers::mark_reported(tx, spec.id)?;
            placed = true;
        }
    }
    insert(tx, &new, now)?;
    Ok(placed || !new.is_empty())
}

/// Inserts providers; fails if the id or the name of one is taken.
fn insert(tx: &mut Tx<'_>, new: &[NewProvider<'_>], now: Timestamp) -> Result<(), Error> {
    let asked = providers::ask_insert(tx, new, now)?;
    let inserted = providers::inserted(tx, asked)?;
    match new.iter().find(|one| !inserted.contains(&one.id)) {
        Some(taken) => Err(Error::Taken { id: taken.id, name: taken.name.to_owned() }),
        None => Ok(()),
    }
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

/// Rows that are written together, so that a report needs few statements.
#[derive(Default)]
struct NewRows<'a> {
    inventories: Vec<(ProviderId, InventoryRow)>,
    traits: Vec<(ProviderId, &'a str)>,
    /// Providers with changes that clients see.
    changed: Vec<ProviderId>,
}

impl NewRows<'_> {
    fn write(&self, tx: &mut Tx<'_>, now: Timestamp) -> Result<(), Error> {
        inventories::insert(tx, &self.inventories)?;
        traits::report(tx, &self.traits, now)?;
        Ok(providers::defer_bumps(tx, &self.changed, now)?)
    }
}

/// Writes changed inventories and traits, and collects new ones in `new`. Returns whether anything
/// visible to clients changed.
fn write_contents<'a>(
    tx: &mut Tx<'_>,
    spec: &'a ProviderSpec,
    inventories: Vec<InventoryRow>,
    traits: HashMap<String, bool>,
    rule: ReservedRule,
    new: &mut NewRows<'a>,
    now: Timestamp,
) -> Result<bool, Error> {
    let visible = write_inventories(tx, spec, inventories, rule, new, now)?
        | write_traits(tx, spec, traits, new)?;
    if visible {
        new.changed.push(spec.id);
    }
    Ok(visible)
}

/// Writes the inventories.
fn write_inventories(
    tx: &mut Tx<'_>,
    spec: &ProviderSpec,
    stored: Vec<InventoryRow>,
    rule: ReservedRule,
    new: &mut NewRows<'_>,
    now: Timestamp,
) -> Result<bool, Error> {
    let reserved = |by_operator: Option<i64>, reported: &Inventory| {
        rule.of(by_operator, reported.reserved, reported.total)
    };
    let mut old: HashMap<ResourceClass, InventoryRow> =
        stored.into_iter().map(|row| (row.class.clone(), row)).collect();
    let mut changed = false;
    for (class, reported) in &spec.inventories {
        let Some(before) = old.remove(class) else {
            if !names::is_standard_class(class) {
                classes::ensure_and_pin(tx, class, now)?;
            }
            let row = InventoryRow {
                class: class.clone(),
                inventory: Inventory { reserved: reserved(None, reported), ..*reported },
                reported_reserved: Some(reported.reserved),
                operator_reserved: None,
                updated_at: now,
            };
            new.inventories.push((spec.id, row));
            changed = true;
            continue;
        };
        let allocation_ratio = match spec.initial_ratios.contains(class) {
            true => before.inventory.allocation_ratio,
            false => reported.allocation_ratio,
        };
        let wanted = Inventory {
            reserved: reserved(before.operator_reserved, reported),
            used: before.inventory.used,
            allocation_ratio,
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
fn write_traits<'a>(
    tx: &mut Tx<'_>,
    spec: &'a ProviderSpec,
    mut old: HashMap<String, bool>,
    new: &mut NewRows<'a>,
) -> Result<bool, Error> {
    let mut changed = false;
    let reported: BTreeSet<&str> = spec.traits.iter().map(String::as_str).collect();
    for name in reported {
        if old.remove(name).is_none() {
            new.traits.push((spec.id, name));
            changed = true;
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
fn withdraw_provider(
    tx: &mut Tx<'_>,
    row: &ProviderRow,
    traits: HashMap<String, bool>,
    now: Timestamp,
) -> Result<bool, Error> {
    if !consumers::any_on(tx, row.id)? && !providers::has_children(tx, row.id)? {
        delete(tx, row.id)?;
        return Ok(true);
    }
    let mut changed = false;
    for inventory in inventories::of_provider(tx, row.id)? {
        changed |= withdraw(tx, row.id, inventory, now)?;
    }
    let is_place = |(name, reported): &(String, bool)| *reported && nearness::is_place(name);
    for (name, _) in traits.into_iter().filter(is_place) {
        traits::remove(tx, row.id, &name)?;
        changed = true;
    }
    if changed {
        providers::defer_bump(tx, row.id, now)?;
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
