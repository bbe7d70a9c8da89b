//! Deletes old operations, the rows of servers deleted long ago, old questions to hosts, and
//! records of unknown guests that hosts no longer report.

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_db::servers::deleted;
use kilonova_compute_db::{questions, unknown_guests};
use kilonova_store::Tx;
use kilonova_wire::time;

use crate::{Compute, Error};

/// How long an ended operation is kept: 30 days.
const KEPT: SignedDuration = SignedDuration::from_hours(30 * 24);

/// How long a deleted server is kept for lists and usage reports: 90 days.
const DELETED_KEPT: SignedDuration = SignedDuration::from_hours(90 * 24);

/// How long a question to a host is kept.
const ASKED_KEPT: SignedDuration = SignedDuration::from_hours(1);

/// How long the record of an unknown guest is kept after its host's last report of it; hosts report
/// every ten minutes.
const GUESTS_KEPT: SignedDuration = SignedDuration::from_hours(24);

/// Maximum number of rows that one transaction deletes. On SQLite, the transaction blocks all other writers.
const BATCH: i64 = 500;

pub(super) async fn run(compute: Compute) -> Result<(), Error> {
    let now = time::now();
    let purged = all(&compute, time::before(now, KEPT), |tx, before| {
        kilonova_flow::purge(tx, before, BATCH).map_err(Error::from)
    })
    .await?;
    all(&compute, time::before(now, DELETED_KEPT), |tx, before| {
        Ok(deleted::purge(tx, before, BATCH)?)
    })
    .await?;
    all(&compute, time::before(now, ASKED_KEPT), |tx, before| {
        Ok(questions::purge(tx, before, BATCH)?)
    })
    .await?;
    all(&compute, time::before(now, GUESTS_KEPT), |tx, before| {
        Ok(unknown_guests::purge(tx, before, BATCH)?)
    })
    .await?;
    if purged > 0 {
        tracing::info!(purged, "deleted old operations");
    }
    Ok(())
}

/// Deletes batches until no old row remains. Returns the number of deleted rows.
async fn all(
    compute: &Compute,
    before: Timestamp,
    purge: fn(&mut Tx<'_>, Timestamp) -> Result<u64, Error>,
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
