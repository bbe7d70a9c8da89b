//! What a host cannot give out for the time being, between two of its reports.

use kilonova_ids::ProviderId;
use kilonova_store::Tx;
use kilonova_wire::time::now_micros;

use super::report::Reserved;
use crate::db::{drains, inventories, providers};
use crate::{Error, World};

/// Changes how much of what a host reported of a device is reserved, as if the host had reported it
/// so. A larger number that an operator set, and draining, go before it.
///
/// # Errors
/// Only of the store.
pub fn reserve(
    tx: &mut Tx<'_>,
    world: &World,
    provider: ProviderId,
    amount: i64,
) -> Result<(), Error> {
    let rule = Reserved { drained: drains::one(tx, provider)?, device: true };
    let now = now_micros();
    let mut changed = false;
    for mut row in inventories::of_provider(tx, provider)? {
        let amount = amount.clamp(0, row.inventory.total);
        if row.reported_reserved.is_none_or(|said| said == amount) {
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

/// [`reserve`] for what has newly to be kept from being claimed: a smaller number that an operator set
/// before says nothing about it.
///
/// # Errors
/// Only of the store.
pub fn reserve_anew(
    tx: &mut Tx<'_>,
    world: &World,
    provider: ProviderId,
    amount: i64,
) -> Result<(), Error> {
    forget_said(tx, provider, amount)?;
    reserve(tx, world, provider, amount)
}

/// Forgets what an operator said of a provider where it was less than an amount that is about to be
/// reserved.
///
/// # Errors
/// Only of the store.
pub fn forget_said(tx: &mut Tx<'_>, provider: ProviderId, amount: i64) -> Result<(), Error> {
    for mut row in inventories::of_provider(tx, provider)? {
        if row.operator_reserved.is_some_and(|said| said < amount) {
            row.operator_reserved = None;
            inventories::put(tx, provider, &row, false)?;
        }
    }
    Ok(())
}

/// How much of what a host reported of a provider an operator wants to be reserved, if he said so.
///
/// # Errors
/// Only of the store.
pub fn said_by_operator(tx: &mut Tx<'_>, provider: ProviderId) -> Result<Option<i64>, Error> {
    let rows = inventories::of_provider(tx, provider)?;
    Ok(rows.iter().filter_map(|row| row.operator_reserved).min())
}
