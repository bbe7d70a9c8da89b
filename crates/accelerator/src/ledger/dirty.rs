//! Handles that nobody holds and nobody may get: their consumer is gone, but its host could not be
//! asked to drop them. The host's own word that nothing of the consumer is left frees them.
//!
//! Both functions return how many handles of each provider they changed are dirty now, so that the
//! caller can keep as many units from being claimed.

use kilonova_ids::{ConsumerId, ProviderId};
use kilonova_store::{Tx, params};
use kilonova_wire::time::now_micros;

use super::Actor;
use crate::Error;
use crate::db::{arqs, changes, handles};

/// Removes the consumer's ARQs and leaves their handles dirty. Idempotent.
///
/// # Errors
/// Only the store's.
pub fn abandon(
    tx: &mut Tx<'_>,
    actor: &Actor,
    consumer: ConsumerId,
) -> Result<Vec<(ProviderId, i64)>, Error> {
    let now = now_micros();
    changes::freed_by_consumer(tx, actor, consumer, now)?;
    tx.execute(handles::DROP_OF_CONSUMER, params![consumer])?;
    tx.execute(handles::SOIL_OF_CONSUMER, params![consumer, now])?;
    tx.execute(arqs::DELETE_OF_CONSUMER, params![consumer])?;
    let providers = handles::soiled_by(tx, consumer)?;
    count(tx, providers)
}

/// Frees what the consumer left dirty. Idempotent.
///
/// # Errors
/// Only the store's.
pub fn clean(tx: &mut Tx<'_>, consumer: ConsumerId) -> Result<Vec<(ProviderId, i64)>, Error> {
    let providers = handles::soiled_by(tx, consumer)?;
    if !providers.is_empty() {
        tx.execute(handles::CLEAN, params![consumer, now_micros()])?;
    }
    count(tx, providers)
}

fn count(tx: &mut Tx<'_>, providers: Vec<ProviderId>) -> Result<Vec<(ProviderId, i64)>, Error> {
    providers.into_iter().map(|id| Ok((id, handles::dirty_on(tx, id)?))).collect()
}
