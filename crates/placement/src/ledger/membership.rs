//! Host aggregates of the compute service, as aggregates of providers: who makes one says so in the
//! same transaction. Aggregates that clients set by the API are left alone.

use kilonova_ids::ProviderId;
use kilonova_store::{Tx, params};
use kilonova_wire::time::now_micros;
use uuid::Uuid;

use crate::db::{aggregates, providers};
use crate::{Error, World};

/// Puts a provider into an aggregate. One that is in it already, or that is not there, is fine.
///
/// # Errors
/// Only of the store.
pub fn join(
    tx: &mut Tx<'_>,
    world: &World,
    provider: ProviderId,
    aggregate: Uuid,
) -> Result<(), Error> {
    change(tx, world, provider, aggregate, aggregates::ADD)
}

/// Takes a provider out of an aggregate. One that is not in it, or not there, is fine.
///
/// # Errors
/// Only of the store.
pub fn leave(
    tx: &mut Tx<'_>,
    world: &World,
    provider: ProviderId,
    aggregate: Uuid,
) -> Result<(), Error> {
    change(tx, world, provider, aggregate, aggregates::REMOVE)
}

fn change(
    tx: &mut Tx<'_>,
    world: &World,
    provider: ProviderId,
    aggregate: Uuid,
    sql: &'static str,
) -> Result<(), Error> {
    let Some(counters) = providers::bump(tx, provider, now_micros())? else { return Ok(()) };
    tx.execute(sql, params![provider, aggregate.to_string()])?;
    world.tree_changed(tx, counters.root)
}
