//! Signs of life go to the database, where other replicas and `compute service list` see them, and
//! what operators changed there comes back.

use crate::db::{aggregates, fleet};
use crate::{Compute, Error};

/// Hosts in one transaction: a host's row is also what boots on it write.
const GROUP: usize = 50;

pub(super) async fn run(compute: Compute) -> Result<(), Error> {
    let seen: Vec<(String, i64)> =
        compute.fleet.all().iter().map(|host| (host.name.to_string(), host.last_seen())).collect();
    for group in seen.chunks(GROUP) {
        let group = group.to_vec();
        compute.store.write(move |tx| fleet::seen(tx, &group)).await?;
    }
    for row in compute.store.read(fleet::all).await? {
        compute.fleet.refresh(&row);
    }
    compute.fleet.regroup(&compute.store.read(aggregates::all).await?);
    Ok(())
}
