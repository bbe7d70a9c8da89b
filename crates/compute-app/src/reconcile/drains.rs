//! Continues the drains of hosts.

use kilonova_compute_db::drains;

use crate::{Compute, Error, drain};

/// Runs one round of each drain in progress. A drain that cannot continue does not delay the others.
///
/// # Errors
/// Store errors only.
pub async fn run(compute: Compute) -> Result<(), Error> {
    let read = compute.store.read(|tx| Ok::<_, Error>(drains::running(tx)?));
    for host in read.await? {
        if let Err(error) = drain::round(&compute, &host).await {
            tracing::warn!(%host, %error, "cannot continue the drain of a host; retrying in a second");
        }
    }
    Ok(())
}
