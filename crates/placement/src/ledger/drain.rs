//! Draining: a provider keeps what is held on it and gives out nothing more.
//!
//! It is a mark of its own beside `reserved`, so that neither a host's report nor an operator's
//! number undoes it, and so that its end brings back the number that was there.

use kilonova_ids::ProviderId;
use kilonova_store::{Tx, params};
use kilonova_wire::time::now_micros;

use crate::db::{drains, providers};
use crate::{Error, World};

/// Starts or ends the draining of a provider that may not be there yet: its host's next
/// [`report_host`](super::report_host) in this transaction acts on it.
///
/// # Errors
/// Only of the store.
pub fn mark_drained(tx: &mut Tx<'_>, provider: ProviderId, drained: bool) -> Result<(), Error> {
    if drained {
        tx.execute(drains::SET, params![provider, now_micros()])?;
    } else {
        tx.execute(drains::CLEAR, params![provider])?;
    }
    tx.execute(providers::FORGET_REPORT, params![provider])?;
    Ok(())
}

/// Starts or ends the draining of a provider. One that is drained already, or not, or not there, is
/// fine.
///
/// # Errors
/// Only of the store.
pub fn drain(
    tx: &mut Tx<'_>,
    world: &World,
    provider: ProviderId,
    drained: bool,
) -> Result<(), Error> {
    mark_drained(tx, provider, drained)?;
    let now = now_micros();
    let sql = if drained { drains::RESERVE } else { drains::RESTORE };
    if tx.execute(sql, params![provider, now])? == 0 {
        return Ok(());
    }
    match providers::bump(tx, provider, now)? {
        Some(counters) => world.tree_changed(tx, counters.root),
        None => Ok(()),
    }
}
