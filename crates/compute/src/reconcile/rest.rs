//! Servers that have rested long enough: deleted ones go for good, shelved ones leave their hosts.

use kilonova_ids::ServerId;
use kilonova_wire::time::now_micros;

use crate::db::resting::{self, Why};
use crate::{Compute, Error, flows};

/// Goes over all of them once.
///
/// # Errors
/// The database's.
pub async fn run(compute: Compute) -> Result<(), Error> {
    for server in due(&compute, Why::Deleted, compute.options.reclaim_instance_interval).await? {
        let own = compute.clone();
        let write = compute.store.write(move |tx| flows::reclaim(tx, &own, server, now_micros()));
        if let Err(error) = write.await {
            tracing::warn!(%server, %error, "a deleted server is not gone yet");
        }
    }
    for server in due(&compute, Why::Shelved, compute.options.shelved_offload_time).await? {
        let own = compute.clone();
        let write =
            compute.store.write(move |tx| flows::offload_unasked(tx, &own, server, now_micros()));
        if let Err(error) = write.await {
            tracing::warn!(%server, %error, "a shelved server has not left its host yet");
        }
    }
    Ok(())
}

/// Those whose time is over; none where the operator gives them all the time there is.
async fn due(compute: &Compute, why: Why, seconds: i64) -> Result<Vec<ServerId>, Error> {
    if seconds <= 0 {
        return Ok(Vec::new());
    }
    let before = now_micros() - seconds.saturating_mul(1_000_000);
    compute.store.read(move |tx| resting::long(tx, why, before)).await
}
