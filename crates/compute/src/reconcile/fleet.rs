//! Signs of life go to the database, where other replicas and `compute service list` see them, and
//! what operators changed there comes back.

use crate::db::fleet;
use crate::{Compute, Error};

pub(super) async fn run(compute: Compute) -> Result<(), Error> {
    let seen: Vec<(String, i64)> =
        compute.fleet.all().iter().map(|host| (host.name.to_string(), host.last_seen())).collect();
    if !seen.is_empty() {
        compute.store.write(move |tx| fleet::seen(tx, &seen)).await?;
    }
    for row in compute.store.read(fleet::all).await? {
        compute.fleet.refresh(&row);
    }
    Ok(())
}
