//! The journal of servers long gone is forgotten, and later they themselves.

use kilonova_store::Tx;
use kilonova_wire::time::now_micros;

use crate::db::questions;
use crate::db::servers::deleted;
use crate::{Compute, Error};

/// Microseconds that a finished operation is kept: 30 days.
const KEPT: i64 = 30 * 24 * 3600 * 1_000_000;

/// Microseconds that a deleted server is kept for lists and accounts: 90 days.
const DELETED_KEPT: i64 = 90 * 24 * 3600 * 1_000_000;

/// Microseconds after which nobody waits for an answer any more: an hour.
const ASKED_KEPT: i64 = 3600 * 1_000_000;

/// Rows forgotten by one transaction: it holds up all others.
const BATCH: i64 = 500;

pub(super) async fn run(compute: Compute) -> Result<(), Error> {
    let now = now_micros();
    let purged = all(&compute, now - KEPT, |tx, before| {
        kilonova_flow::purge(tx, before, BATCH).map_err(Error::from)
    })
    .await?;
    all(&compute, now - DELETED_KEPT, |tx, before| deleted::purge(tx, before, BATCH)).await?;
    all(&compute, now - ASKED_KEPT, |tx, before| questions::purge(tx, before, BATCH)).await?;
    if purged > 0 {
        tracing::info!(purged, "forgot old operations");
    }
    Ok(())
}

/// Forgets batch after batch until nothing is old; says how much that was.
async fn all(
    compute: &Compute,
    before: i64,
    purge: fn(&mut Tx<'_>, i64) -> Result<u64, Error>,
) -> Result<u64, Error> {
    let mut purged = 0;
    loop {
        let some = compute.store.write(move |tx| purge(tx, before)).await?;
        purged += some;
        if i64::try_from(some).is_ok_and(|some| some < BATCH) {
            return Ok(purged);
        }
    }
}
