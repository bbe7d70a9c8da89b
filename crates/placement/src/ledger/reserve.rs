//! What a host cannot give out for the time being, between two of its reports.

use kilonova_ids::ProviderId;
use kilonova_store::Tx;
use kilonova_wire::time::now_micros;

use crate::db::{drains, inventories, providers};
use crate::{Error, World};

/// Changes how much of what a host reported of a provider is reserved, as if the host had reported
/// it so. A number that an operator set, and draining, go before it.
///
/// # Errors
/// Only of the store.
pub fn reserve(
    tx: &mut Tx<'_>,
    world: &World,
    provider: ProviderId,
    amount: i64,
) -> Result<(), Error> {
    let drained = drains::one(tx, provider)?;
    let now = now_micros();
    let mut changed = false;
    for mut row in inventories::of_provider(tx, provider)? {
        let amount = amount.clamp(0, row.inventory.total);
        if row.reported_reserved.is_none_or(|said| said == amount) {
            continue;
        }
        row.reported_reserved = Some(amount);
        if !drained {
            row.inventory.reserved = row.operator_reserved.unwrap_or(amount);
        }
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
