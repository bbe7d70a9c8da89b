//! Dirty handles: their consumer is gone, but its host could not be reached to remove the guest.
//! They are freed when the host reports that it no longer uses them.
//!
//! [`abandon`] and [`clean`] return the unavailable amount of each affected provider, including
//! handles that exclude each other, so that the caller can reserve it.

use std::collections::BTreeMap;

use kilonova_ids::{ConsumerId, HostName, ProviderId};
use kilonova_store::Tx;
use kilonova_wire::time;

use super::{Actor, orders};
use crate::Error;
use crate::db::handles::Shared;
use crate::db::{self, arqs, changes, handles, withheld};

/// Deletes the consumer's ARQs and leaves their handles dirty. Idempotent.
///
/// # Errors
/// Store errors only.
pub fn abandon(
    tx: &mut Tx<'_>,
    actor: &Actor,
    consumer: ConsumerId,
) -> Result<BTreeMap<ProviderId, i64>, Error> {
    let now = time::now();
    let cards = handles::shared_of_consumer(tx, consumer)?.cards;
    changes::freed_by_consumer(tx, actor, consumer, now)?;
    handles::leave_dirty(tx, consumer, now)?;
    orders::mark_dirty(tx, consumer)?;
    arqs::delete_of_consumer(tx, consumer)?;
    let providers = handles::dirty_providers_of(tx, consumer)?;
    Ok(withheld::each(tx, providers, &cards)?)
}

/// Announces [`left_dirty`].
///
/// # Errors
/// Store errors only.
pub fn expect_left_dirty(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<(), Error> {
    Ok(handles::expect_dirty_providers_of(tx, consumer)?)
}

/// True if the consumer left handles dirty.
///
/// # Errors
/// Store errors only.
pub fn left_dirty(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<bool, Error> {
    Ok(!handles::dirty_providers_of(tx, consumer)?.is_empty())
}

/// Frees the handles that the consumer left dirty on a host. Idempotent. A consumer leaves handles on one host only.
///
/// # Errors
/// Store errors only.
pub fn clean(
    tx: &mut Tx<'_>,
    host: &HostName,
    consumer: ConsumerId,
) -> Result<BTreeMap<ProviderId, i64>, Error> {
    let providers = handles::dirty_providers_on(tx, host, consumer)?;
    if providers.is_empty() {
        return Ok(BTreeMap::new());
    }
    let Shared { cards, islands } = handles::shared_of_consumer(tx, consumer)?;
    let now = time::now();
    handles::touch_cards(tx, &cards)?;
    islands.iter().try_for_each(|island| db::islands::touch(tx, island))?;
    orders::clean_dropped(tx, consumer, now)?;
    handles::free_dirty(tx, consumer, now)?;
    let mut all = withheld::each(tx, providers, &cards)?;
    all.extend(withheld::of_islands(tx, &islands)?);
    Ok(all)
}
