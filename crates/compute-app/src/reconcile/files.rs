//! Removes injected files from the database once the boot or the rebuild that gives them to a host has ended, whether it
//! succeeded or not.

use kilonova_compute_db::servers::files;
use kilonova_store::Tx;

use crate::{Compute, Error};

/// Maximum number of servers of one sweep.
const MOST: i64 = 1000;

/// One sweep. Each server has a transaction of its own.
///
/// # Errors
/// Store errors only.
pub async fn run(compute: Compute) -> Result<(), Error> {
    for server in compute.store.read(|tx| files::unneeded(tx, MOST)).await? {
        let write = move |tx: &mut Tx<'_>| files::remove(tx, server).map_err(Error::from);
        if let Err(error) = compute.store.write(write).await {
            tracing::warn!(%server, %error, "cannot remove the injected files of a server from the database; trying again");
        }
    }
    Ok(())
}
