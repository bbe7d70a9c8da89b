//! Changes a device's reserved amount between two reports from its host.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_ids::ProviderId;
use kilonova_store::Tx;
use kilonova_wire::time;

use super::report::ReservedRule;
use crate::db::inventories::Placed;
use crate::db::{drains, inventories, providers};
use crate::{Error, World};

/// Changes the reserved amount of a device as if its host had reported it. A larger amount set by
/// an operator, and draining, take precedence.
///
/// # Errors
/// Store errors only.
pub fn reserve(
    tx: &mut Tx<'_>,
    world: &World,
    provider: ProviderId,
    amount: i64,
) -> Result<(), Error> {
    reserve_each(tx, world, &BTreeMap::from([(provider, amount)]))
}

/// [`reserve`] for several devices, in the same number of round trips as for one. Writes only what
/// differs.
///
/// # Errors
/// Store errors only.
pub fn reserve_each(
    tx: &mut Tx<'_>,
    world: &World,
    amounts: &BTreeMap<ProviderId, i64>,
) -> Result<(), Error> {
    let ids: Vec<ProviderId> = amounts.keys().copied().collect();
    let drained = drains::ask_of(tx, &ids)?;
    let stored = inventories::ask_of(tx, &ids)?;
    let drained = drains::found(tx, drained)?;
    let now = time::now();
    let mut changed = Vec::new();
    let mut roots = BTreeSet::new();
    for Placed { provider, root, mut row } in inventories::found(tx, stored)? {
        let Some(amount) = amounts.get(&provider) else { continue };
        let total = row.inventory.total;
        let amount = (*amount).clamp(0, total);
        if row.reported_reserved.is_none_or(|reserved| reserved == amount) {
            continue;
        }
        let rule = ReservedRule { drained: drained.contains(&provider), device: true };
        row.reported_reserved = Some(amount);
        row.inventory.reserved = rule.of(row.operator_reserved, amount, total);
        row.updated_at = now;
        changed.push((provider, row));
        roots.insert(root);
    }
    inventories::reserve(tx, &changed)?;
    let mut ids: Vec<ProviderId> = changed.iter().map(|(provider, _)| *provider).collect();
    ids.dedup();
    providers::defer_bumps(tx, &ids, now)?;
    roots.into_iter().try_for_each(|root| world.tree_changed(tx, root))
}

/// Like [`reserve`], but first clears a smaller amount set by an operator, because the operator set
/// it for another reason.
///
/// # Errors
/// Store errors only.
pub fn reserve_at_least(
    tx: &mut Tx<'_>,
    world: &World,
    provider: ProviderId,
    amount: i64,
) -> Result<(), Error> {
    clear_operator_reserved(tx, provider, amount)?;
    reserve(tx, world, provider, amount)
}

/// Clears an operator's `reserved` if it is smaller than the amount that is about to be reserved.
///
/// # Errors
/// Store errors only.
pub fn clear_operator_reserved(
    tx: &mut Tx<'_>,
    provider: ProviderId,
    amount: i64,
) -> Result<(), Error> {
    for mut row in inventories::of_provider(tx, provider)? {
        if row.operator_reserved.is_some_and(|reserved| reserved < amount) {
            row.operator_reserved = None;
            inventories::put(tx, provider, &row, false)?;
        }
    }
    Ok(())
}

/// The `reserved` that an operator set on a provider, if any.
///
/// # Errors
/// Store errors only.
pub fn operator_reserved(tx: &mut Tx<'_>, provider: ProviderId) -> Result<Option<i64>, Error> {
    let rows = inventories::of_provider(tx, provider)?;
    Ok(rows.iter().filter_map(|row| row.operator_reserved).min())
}
