//! Handing claims to and fro between a server and its migration.

use kilonova_accelerator::ledger as devices;
use kilonova_ids::{ConsumerId, ServerId};
use kilonova_placement::ledger as placement;
use kilonova_store::Tx;

use crate::app::boot::{abandon_of, consumer_of, reclaim, release_of};
use crate::db::moves;
use crate::{Compute, Error};

fn hand_over(
    tx: &mut Tx<'_>,
    from: ConsumerId,
    to: ConsumerId,
    consumer_type: &str,
) -> Result<(), Error> {
    placement::hand_over(tx, from, to, consumer_type)?;
    Ok(devices::hand_over(tx, from, to)?)
}

/// The migration takes over what the server holds on its host, so that the server can claim another
/// place.
///
/// # Errors
/// The database's; so for all functions here.
pub fn leave(
    tx: &mut Tx<'_>,
    server: ServerId,
    migration: ConsumerId,
    host: &str,
) -> Result<(), Error> {
    hand_over(tx, consumer_of(server), migration, "MIGRATION")?;
    moves::set_held(tx, migration, Some(host))
}

/// The server, which holds nothing, takes back what it left.
pub fn take_back(tx: &mut Tx<'_>, server: ServerId, migration: ConsumerId) -> Result<(), Error> {
    hand_over(tx, migration, consumer_of(server), "INSTANCE")?;
    moves::set_held(tx, migration, None)
}

/// Server and migration take each other's place; what was the server's is on `host`.
pub fn swap(
    tx: &mut Tx<'_>,
    server: ServerId,
    migration: ConsumerId,
    host: &str,
) -> Result<(), Error> {
    let aside = ConsumerId::new_v4();
    hand_over(tx, consumer_of(server), aside, "MIGRATION")?;
    hand_over(tx, migration, consumer_of(server), "INSTANCE")?;
    hand_over(tx, aside, migration, "MIGRATION")?;
    moves::set_held(tx, migration, Some(host))
}

/// Nothing of the server is left on a host: whatever its migrations hold there is given back.
pub fn drop_held(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    host: &str,
) -> Result<(), Error> {
    for held in moves::held_on(tx, server, host)? {
        release_of(tx, compute, server, held.id)?;
        reclaim(tx, compute, held.id)?;
        moves::set_held(tx, held.id, None)?;
    }
    Ok(())
}

/// The same for a host that cannot be asked: its devices go to nobody before [`drop_held`].
pub fn abandon_held(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    host: &str,
) -> Result<(), Error> {
    for held in moves::held_on(tx, server, host)? {
        abandon_of(tx, compute, server, held.id)?;
    }
    Ok(())
}
