//! Mirrors the host aggregates of the compute service as provider aggregates, in the transaction
//! that changes the host aggregate. Aggregates that clients set through the API stay unchanged.

use kilonova_ids::ProviderId;
use kilonova_store::Tx;
use kilonova_wire::time;
use uuid::Uuid;

use crate::db::{aggregates, providers};
use crate::{Error, World};

/// Adds a provider to an aggregate. Idempotent; a provider that does not exist is not an error.
///
/// # Errors
/// Store errors only.
pub fn join(
    tx: &mut Tx<'_>,
    world: &World,
    provider: ProviderId,
    aggregate: Uuid,
) -> Result<(), Error> {
    change(tx, world, provider, aggregate, aggregates::add)
}

/// Removes a provider from an aggregate. Idempotent; a provider that does not exist is not an
/// error.
///
/// # Errors
/// Store errors only.
pub fn leave(
    tx: &mut Tx<'_>,
    world: &World,
    provider: ProviderId,
    aggregate: Uuid,
) -> Result<(), Error> {
    change(tx, world, provider, aggregate, aggregates::remove)
}

fn change(
    tx: &mut Tx<'_>,
    world: &World,
    provider: ProviderId,
    aggregate: Uuid,
    write: fn(&mut Tx<'_>, ProviderId, Uuid) -> Result<(), kilonova_store::Error>,
) -> Result<(), Error> {
    let Some(counters) = providers::bump(tx, provider, time::now())? else { return Ok(()) };
    write(tx, provider, aggregate)?;
    world.tree_changed(tx, counters.root)
}
