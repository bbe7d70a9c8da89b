//! Ends states whose time is bounded: reclaims soft-deleted servers, ends rescues, offloads shelved
//! servers.

use kilonova_compute_db::resting::{self, Why};
use kilonova_ids::ServerId;
use kilonova_store::Tx;
use kilonova_wire::time::now_micros;

use crate::{Compute, Error, flows};

/// Reclaims soft-deleted servers and ends rescues once.
///
/// # Errors
/// The database's.
pub async fn run(compute: Compute) -> Result<(), Error> {
    let options = compute.options.clone();
    over(&compute, Why::Deleted, options.reclaim_instance_interval, flows::reclaim).await?;
    over(&compute, Why::Rescued, options.rescue_timeout, flows::unrescue_expired).await
}

/// Offloads shelved servers once.
///
/// # Errors
/// The database's.
pub async fn shelved(compute: Compute) -> Result<(), Error> {
    let seconds = compute.options.shelved_offload_time;
    over(&compute, Why::Shelved, seconds, flows::offload_expired).await
}

type End = fn(&mut Tx<'_>, &Compute, ServerId, i64) -> Result<(), Error>;

async fn over(compute: &Compute, why: Why, seconds: i64, end: End) -> Result<(), Error> {
    for server in due(compute, why, seconds).await? {
        let own = compute.clone();
        let write = compute.store.write(move |tx| end(tx, &own, server, now_micros()));
        if let Err(error) = write.await {
            tracing::warn!(%server, ?why, %error, "could not end an expired state of a server; retrying");
        }
    }
    Ok(())
}

/// Servers whose time is over; none where the option sets no bound.
async fn due(compute: &Compute, why: Why, seconds: i64) -> Result<Vec<ServerId>, Error> {
    if seconds <= 0 {
        return Ok(Vec::new());
    }
    let before = now_micros() - seconds.saturating_mul(1_000_000);
    Ok(compute.store.read(move |tx| resting::long(tx, why, before)).await?)
}
