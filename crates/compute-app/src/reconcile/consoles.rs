//! Deletes expired console tokens, and console requests without a waiting client.

use kilonova_compute_db::consoles;
use kilonova_wire::time;

use crate::{Compute, Error};

/// Maximum number of rows of each kind that one transaction deletes.
const BATCH: i64 = 500;

/// One sweep.
///
/// # Errors
/// Store errors only.
pub async fn run(compute: Compute) -> Result<(), Error> {
    loop {
        let now = time::now();
        let swept =
            compute.store.write(move |tx| consoles::purge(tx, now, BATCH).map_err(Error::from));
        if i64::try_from(swept.await?).is_ok_and(|swept| swept < BATCH) {
            return Ok(());
        }
    }
}
