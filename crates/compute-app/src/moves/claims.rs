//! Moving claims between a server and its migration.

use kilonova_accelerator::ledger as devices;
use kilonova_compute_db::moves::{self, Move};
use kilonova_ids::{ConsumerId, HostName, ServerId};
use kilonova_placement::ledger as placement;
use kilonova_store::Tx;

use crate::boot::{self, abandon_of, consumer_of};
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

/// Moves the server's claim to the migration, so that the server can claim resources on another
/// host.
///
/// # Errors
/// Store errors only; also for all functions below.
pub fn leave(
    tx: &mut Tx<'_>,
    server: ServerId,
    migration: ConsumerId,
    host: &HostName,
) -> Result<(), Error> {
    hand_over(tx, consumer_of(server), migration, "MIGRATION")?;
    Ok(moves::set_held(tx, migration, Some(host))?)
}

/// Moves the claim back to the server, which must have none.
pub fn take_back(tx: &mut Tx<'_>, server: ServerId, migration: ConsumerId) -> Result<(), Error> {
    hand_over(tx, migration, consumer_of(server), "INSTANCE")?;
    Ok(moves::set_held(tx, migration, None)?)
}

/// Exchanges the claims of server and migration; the server's former claim is on `host`.
pub fn swap(
    tx: &mut Tx<'_>,
    server: ServerId,
    migration: ConsumerId,
    host: &HostName,
) -> Result<(), Error> {
    let aside = ConsumerId::new_v4();
    hand_over(tx, consumer_of(server), aside, "MIGRATION")?;
    hand_over(tx, migration, consumer_of(server), "INSTANCE")?;
    hand_over(tx, aside, migration, "MIGRATION")?;
    Ok(moves::set_held(tx, migration, Some(host))?)
}

/// Releases the claims of a server's migrations on a host, once the host has removed the guest.
pub fn drop_held(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    host: &HostName,
) -> Result<(), Error> {
    let held = moves::held_on(tx, server, host)?;
    drop_moves(tx, compute, server, held)
}

/// [`drop_held`] of these migrations.
pub fn drop_moves(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    held: Vec<Move>,
) -> Result<(), Error> {
    for held in held {
        boot::expect_held(tx, held.id)?;
        devices::expect_left_dirty(tx, held.id)?;
        boot::expect_initiator_of(tx, server)?;
        let claims = boot::held(tx, held.id)?;
        let is_dirty = devices::left_dirty(tx, held.id)?;
        let actor = boot::initiator_of(tx, server)?;
        boot::release_held(tx, compute, &actor, held.id, claims)?;
        if is_dirty {
            boot::reclaim(tx, compute, held.id)?;
        }
        moves::set_held(tx, held.id, None)?;
    }
    Ok(())
}

/// The same for an unreachable host: the devices stay dirty until [`drop_held`].
pub fn abandon_held(
    tx: &mut Tx<'_>,
    compute: &Compute,
    server: ServerId,
    host: &HostName,
) -> Result<(), Error> {
    for held in moves::held_on(tx, server, host)? {
        abandon_of(tx, compute, server, held.id)?;
    }
    Ok(())
}
