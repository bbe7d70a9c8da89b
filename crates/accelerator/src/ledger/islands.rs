//! Closed islands: a server that requests `exclusive-island` has an island to itself.
//!
//! The claim's transaction closes the island: it marks the consumer's handles and reserves the island's other devices
//! in Placement, like handles that an assigned one excludes. The choice of handles enforces the mark. The release opens
//! the island.

use std::collections::BTreeSet;

use kilonova_ids::{ConsumerId, ProviderId};
use kilonova_placement::{World, ledger as placement};
use kilonova_store::Tx;

use crate::Error;
use crate::db::islands::{self as rows, Island};
use crate::db::withheld;

/// Closes the island of a provider's device for a consumer that has just claimed devices there. Returns false, without
/// a change, if the device is not in an island or another consumer uses a device of the island.
///
/// # Errors
/// Store errors only.
pub fn close_island(
    tx: &mut Tx<'_>,
    world: &World,
    consumer: ConsumerId,
    provider: ProviderId,
) -> Result<bool, Error> {
    let Some(island) = rows::of_provider(tx, provider)? else { return Ok(false) };
    let providers = rows::providers(tx, &island)?;
    if rows::is_of_another(tx, &island, consumer)?
        || placement::is_used_by_another(tx, &providers, consumer)?
    {
        return Ok(false);
    }
    rows::touch(tx, &island)?;
    rows::close(tx, &island, consumer)?;
    update(tx, world, &BTreeSet::from([island]))?;
    Ok(true)
}

/// Updates the reserved amounts of islands in Placement after their devices were claimed or released.
pub(super) fn update(
    tx: &mut Tx<'_>,
    world: &World,
    islands: &BTreeSet<Island>,
) -> Result<(), Error> {
    if islands.is_empty() {
        return Ok(());
    }
    let withheld = withheld::of_islands(tx, islands)?;
    Ok(placement::reserve_each(tx, world, &withheld)?)
}
