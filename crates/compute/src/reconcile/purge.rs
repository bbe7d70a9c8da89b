//! The journal of servers long gone is forgotten, and later they themselves.

use kilonova_wire::time::now_micros;

use crate::{Compute, Error};

/// Microseconds that a finished operation is kept: 30 days.
const KEPT: i64 = 30 * 24 * 3600 * 1_000_000;

/// Microseconds that a deleted server is kept for lists and accounts: 90 days.
const DELETED_KEPT: i64 = 90 * 24 * 3600 * 1_000_000;

/// Microseconds after which nobody waits for an answer any more: an hour.
const ASKED_KEPT: i64 = 3600 * 1_000_000;

pub(super) async fn run(compute: Compute) -> Result<(), Error> {
    let before = now_micros() - KEPT;
    let purged = compute
        .store
        .write(move |tx| kilonova_flow::purge(tx, before).map_err(Error::from))
        .await?;
    let before = now_micros() - DELETED_KEPT;
    compute.store.write(move |tx| crate::db::servers::deleted::purge(tx, before)).await?;
    let before = now_micros() - ASKED_KEPT;
    compute.store.write(move |tx| crate::db::questions::purge(tx, before)).await?;
    if purged > 0 {
        tracing::info!(purged, "forgot old operations");
    }
    Ok(())
}
