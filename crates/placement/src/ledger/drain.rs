//! Draining: a provider keeps its allocations and accepts no further ones.
//!
//! The drain is stored separately from `reserved`. Therefore a host's report or an operator's
//! `reserved` does not end it, and ending it restores the previous amount.

use kilonova_ids::ProviderId;
use kilonova_store::Tx;
use kilonova_wire::time;

use crate::db::{drains, providers};
use crate::{Error, World};

/// Starts or ends the draining of a provider that may not exist yet. The host's next
/// [`report_host`](super::report_host) in this transaction applies it.
///
/// # Errors
/// Store errors only.
pub fn mark_drained(tx: &mut Tx<'_>, provider: ProviderId, drained: bool) -> Result<(), Error> {
    if drained {
        drains::set(tx, provider, time::now())?;
    } else {
        drains::clear(tx, provider)?;
    }
    Ok(providers::clear_report(tx, provider)?)
}

/// Starts or ends the draining of a provider. Idempotent; a provider that does not exist is not an
/// error.
///
/// # Errors
/// Store errors only.
pub fn drain(
    tx: &mut Tx<'_>,
    world: &World,
    provider: ProviderId,
    drained: bool,
) -> Result<(), Error> {
    mark_drained(tx, provider, drained)?;
    let now = time::now();
    let changed = if drained {
        drains::reserve(tx, provider, now)?
    } else {
        drains::restore(tx, provider, now)?
    };
    if !changed {
        return Ok(());
    }
    match providers::bump(tx, provider, now)? {
        Some(counters) => world.tree_changed(tx, counters.root),
        None => Ok(()),
    }
}

/// Notifies the followers of a host's tree that something other than its amounts has changed, such as the health of a
/// device. Call this after the transaction's last write to the tree.
///
/// # Errors
/// Store errors only.
pub fn facts_changed(tx: &mut Tx<'_>, world: &World, root: ProviderId) -> Result<(), Error> {
    world.tree_changed(tx, root)
}
