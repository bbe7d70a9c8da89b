//! Deletes orphaned unbound requests and old handle changes. A client that died between creating
//! and binding a request would otherwise block the deletion of the device profile forever.

use std::time::Duration;

use kilonova_store::Store;
use kilonova_wire::time;

use crate::Error;
use crate::db::{arqs, changes, orders};

/// The deleted rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expired {
    /// Unbound requests.
    pub requests: u64,
    /// Handle changes.
    pub changes: u64,
}

/// Deletes unbound requests that have not changed for the duration `unbound`, and handle changes and
/// orders older than `noted`.
///
/// # Errors
/// Store errors only.
pub async fn expire(store: &Store, unbound: Duration, noted: Duration) -> Result<Expired, Error> {
    let now = time::now();
    let before = |age: Duration| time::before(now, time::signed(age));
    let (unbound, noted) = (before(unbound), before(noted));
    store
        .write(move |tx| {
            Ok(Expired {
                requests: arqs::expire(tx, unbound)?,
                changes: changes::forget(tx, noted)? + orders::forget(tx, noted)?,
            })
        })
        .await
}
