//! Changes of a device's reserved amount between two reports of its host.

use kilonova_ids::ProviderId;
use kilonova_store::Tx;
use kilonova_wire::time;

use super::report::ReservedRule;
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
    let rule = ReservedRule { drained: drains::one(tx, provider)?, device: true };
    let now = time::now();
    let mut changed = false;
    for mut row in inventories::of_provider(tx, provider)? {
        let amount = amount.clamp(0, row.inventory.total);
        if row.reported_reserved.is_none_or(|reserved| reserved == amount) {
            continue;
        }
        row.reported_reserved = Some(amount);
        row.inventory.reserved = rule.of(row.operator_reserved, amount, row.inventory.total);
        row.updated_at = now;
        inventories::put(tx, provider, &row, false)?;
        changed = true;
    }
    if !changed {
        return Ok(());
    }
    match providers::bump(tx, provider, now)? {
        Some(counters) => world.tree_changed(tx, counters.root),
        None => Ok(()),
    }
}

/// Like [`reserve`], but first clears a smaller amount set by an operator, because it does not
/// apply to the new reason.
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
