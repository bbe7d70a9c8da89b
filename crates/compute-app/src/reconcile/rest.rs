//! Ends states whose time is bounded: reclaims soft-deleted servers, ends rescues, offloads shelved
//! servers.

use jiff::{SignedDuration, Timestamp};
use kilonova_compute_db::resting::{self, Why};
use kilonova_ids::ServerId;
use kilonova_store::Tx;
use kilonova_wire::time;

use crate::{Compute, Error, flows};

/// Reclaims soft-deleted servers and ends rescues once.
///
/// # Errors
/// Store errors only.
pub async fn run(compute: Compute) -> Result<(), Error> {
    let options = compute.options.clone();
    over(&compute, Why::Deleted, options.reclaim_instance_interval, flows::reclaim).await?;
    over(&compute, Why::Rescued, options.rescue_timeout, flows::unrescue_expired).await
}

/// Offloads shelved servers once.
///
/// # Errors
/// Store errors only.
pub async fn shelved(compute: Compute) -> Result<(), Error> {
    let limit = compute.options.shelved_offload_time;
    over(&compute, Why::Shelved, limit, flows::offload_expired).await
}

type End = fn(&mut Tx<'_>, &Compute, ServerId, Timestamp) -> Result<(), Error>;

async fn over(compute: &Compute, why: Why, limit: SignedDuration, end: End) -> Result<(), Error> {
    for server in due(compute, why, limit).await? {
        let own = compute.clone();
        let write = compute.store.write(move |tx| end(tx, &own, server, time::now()));
        if let Err(error) = write.await {
            tracing::warn!(%server, ?why, %error, "could not end an expired state of a server; retrying");
        }
    }
    Ok(())
}

/// Servers whose time has expired; empty if the option sets no limit.
async fn due(compute: &Compute, why: Why, limit: SignedDuration) -> Result<Vec<ServerId>, Error> {
    if !limit.is_positive() {
        return Ok(Vec::new());
    }
    let before = time::before(time::now(), limit);
    Ok(compute.store.read(move |tx| resting::long(tx, why, before)).await?)
}
