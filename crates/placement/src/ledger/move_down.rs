//! Reshape of root inventories: a class may move from a host's root provider to its children (VGPU
//! was on the root before providers were nested). The first report that names the children
//! moves the class's allocations to them. The old inventory is removed, because it would offer the
//! same units twice.
//!
//! Each consumer moves completely or not at all. If the children have no room for all of its
//! allocations, the allocations stay on the old inventory, which is fully reserved, until a later
//! report finds room.

use jiff::Timestamp;
use kilonova_ids::{ProviderId, ResourceClass};
use kilonova_store::Tx;

use super::ProviderSpec;
use crate::Error;
use crate::db::consumers::{self, OnProviderRow};
use crate::db::inventories::{self, InventoryRow};
use crate::db::providers;

/// A child with free capacity of a class.
struct Child {
    id: ProviderId,
    room: i64,
    max_unit: i64,
    min_unit: i64,
    step_size: i64,
}

impl Child {
    fn of(id: ProviderId, row: &InventoryRow) -> Self {
        let inv = &row.inventory;
        let capacity = ((inv.total - inv.reserved) as f64 * inv.allocation_ratio) as i64;
        let (max_unit, min_unit, step_size) = (inv.max_unit, inv.min_unit, inv.step_size.max(1));
        Self { id, room: (capacity - inv.used).max(0), max_unit, min_unit, step_size }
    }

    /// The part of an amount that fits into one allocation on this child.
    fn share(&self, amount: i64) -> i64 {
        let most = amount.min(self.room).min(self.max_unit);
        let most = most - most % self.step_size;
        if most >= self.min_unit { most } else { 0 }
    }
}

/// True if only the children now offer the class.
pub(super) fn is_below(
    root: &ProviderSpec,
    reported: &[ProviderSpec],
    class: &ResourceClass,
) -> bool {
    let offers = |spec: &ProviderSpec| spec.inventories.iter().any(|(of, _)| of == class);
    reported.iter().any(offers) && !offers(root)
}

/// Moves allocations from the root to its children, for classes that only the children offer now.
/// Returns the inventories to remove, and whether anything moved.
///
/// # Errors
/// Store errors only.
pub(super) fn move_down(
    tx: &mut Tx<'_>,
    root: &ProviderSpec,
    reported: &[ProviderSpec],
    now: Timestamp,
) -> Result<(Vec<InventoryRow>, bool), Error> {
    let offers =
        |spec: &ProviderSpec, class: &ResourceClass| spec.inventories.iter().any(|i| i.0 == *class);
    let mut old = inventories::of_provider(tx, root.id)?;
    old.retain(|row| is_below(root, reported, &row.class));
    if !old.is_empty() {
        providers::lock_tree(tx, root.id)?;
    }
    let mut moved = false;
    for row in &mut old {
        let mut holders = consumers::on_provider(tx, root.id)?;
        holders.retain(|held| held.class == row.class);
        holders.sort_by_key(|held| (-held.used, held.consumer));
        let mut children = Vec::new();
        for child in reported.iter().filter(|child| offers(child, &row.class)) {
            let rows = inventories::of_provider(tx, child.id)?;
            let there = rows.iter().find(|there| there.class == row.class);
            children.extend(there.map(|there| Child::of(child.id, there)));
        }
        for held in holders {
            let Some(parts) = shares(&children, held.used) else {
                tracing::warn!(
                    "consumer {} keeps {} {} on provider {}, because its child providers have no room",
                    held.consumer,
                    held.used,
                    held.class,
                    root.name
                );
                continue;
            };
            hand_down(tx, root.id, &held, &mut children, &parts, now)?;
            row.inventory.used -= held.used;
            moved = true;
        }
    }
    Ok((old, moved))
}

/// Distributes an amount over children. Prefers a single child: of those with enough room, the one
/// with the least. Returns `None` if the amount does not fit.
fn shares(children: &[Child], amount: i64) -> Option<Vec<(usize, i64)>> {
    let whole = children.iter().enumerate().filter(|(_, child)| child.share(amount) == amount);
    if let Some((at, _)) = whole.min_by_key(|(_, child)| child.room) {
        return Some(vec![(at, amount)]);
    }
    let mut left = amount;
    let mut parts = Vec::new();
    for (at, child) in children.iter().enumerate() {
        let share = child.share(left);
        if share > 0 {
            parts.push((at, share));
            left -= share;
        }
    }
    (left == 0).then_some(parts)
}

fn hand_down(
    tx: &mut Tx<'_>,
    root: ProviderId,
    held: &OnProviderRow,
    children: &mut [Child],
    parts: &[(usize, i64)],
    now: Timestamp,
) -> Result<(), Error> {
    let (consumer, class) = (held.consumer, &held.class);
    consumers::delete_allocation(tx, consumer, root, class)?;
    inventories::add_usage(tx, root, class, -held.used)?;
    for (at, amount) in parts {
        let Some(child) = children.get_mut(*at) else { continue };
        consumers::add_allocation(tx, consumer, child.id, class, *amount, now)?;
        inventories::add_usage(tx, child.id, class, *amount)?;
        child.room -= amount;
    }
    consumers::bump(tx, consumer, now)?;
    for id in parts.iter().filter_map(|(at, _)| children.get(*at).map(|child| child.id)) {
        providers::bump(tx, id, now)?;
    }
    Ok(())
}
