//! The loops of this service. Each iteration calls one function, which tests can also call. All state
//! is in the database, except for the position that `lost` has reached.
//!
//! Every controller delivers events to Nova; a lease in an event's row keeps the other controllers
//! from sending it at the same time. Each other loop runs in only one controller.

mod deliver;
mod expire;
mod lost;
mod pending;

use std::time::Duration;

pub use deliver::{Delivered, deliver};
pub use expire::{Expired, expire};
pub use lost::{Lost, lost};
pub use pending::process_pending;

use kilonova_store::Store;

use crate::State;

/// Time without a change after which an unbound request counts as orphaned.
pub const UNBOUND_KEPT: Duration = Duration::from_secs(24 * 3600);
/// Retention period of handle changes.
pub const CHANGES_KEPT: Duration = Duration::from_secs(90 * 24 * 3600);

const EXPIRE_EVERY: Duration = Duration::from_secs(600);
const DELIVER_EVERY: Duration = Duration::from_secs(1);
/// Interval between two checks for deleted external instances.
const EXTERNAL_CHECK_INTERVAL: Duration = Duration::from_secs(30);
const PENDING_INTERVAL: Duration = Duration::from_secs(2);
/// Interval at which a controller without the lease checks whether it has acquired it.
const LEASE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Starts the loops, which run until the runtime shuts down. Those that belong to a single controller
/// do work only while `is_ours` returns true; once this controller has lost the lease, `fenced` refuses
/// their transactions.
pub fn start(
    state: &State,
    fenced: &Store,
    is_ours: impl Fn() -> bool + Clone + Send + Sync + 'static,
) {
    let (store, expires) = (fenced.clone(), is_ours.clone());
    tokio::spawn(async move {
        loop {
            if !expires() {
                tokio::time::sleep(LEASE_CHECK_INTERVAL).await;
                continue;
            }
            match expire(&store, UNBOUND_KEPT, CHANGES_KEPT).await {
                Ok(done) if done.requests > 0 => {
                    tracing::info!(
                        requests = done.requests,
                        "deleted orphaned accelerator requests"
                    );
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, "cannot delete orphaned accelerator requests")
                }
            }
            tokio::time::sleep(EXPIRE_EVERY).await;
        }
    });
    let (tidied, tidies) = (state.clone().with_store(fenced.clone()), is_ours.clone());
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(PENDING_INTERVAL).await;
            if !tidies() {
                continue;
            }
            match process_pending(&tidied).await {
                Ok(done) if done.cleaned + done.again > 0 => {
                    let (cleaned, again) = (done.cleaned, done.again);
                    tracing::info!(cleaned, again, "processed parked device handles");
                }
                Ok(_) => {}
                Err(error) => tracing::error!(%error, "cannot process parked device handles"),
            }
        }
    });
    let (store, Some(outbox)) = (state.store.clone(), state.outbox.clone()) else { return };
    let (searched, nova) = (state.clone().with_store(fenced.clone()), outbox.nova.clone());
    tokio::spawn(async move {
        let mut next = 0;
        loop {
            tokio::time::sleep(EXTERNAL_CHECK_INTERVAL).await;
            if !is_ours() {
                continue;
            }
            match lost(&searched, &*nova, next).await {
                Ok(done) => next = done.next,
                Err(error) => {
                    tracing::error!(%error, "cannot check for deleted external instances")
                }
            }
        }
    });
    tokio::spawn(async move {
        loop {
            match deliver(&store, &*outbox.nova).await {
                Ok(done) if done.delivered > 0 => continue,
                Ok(_) => {}
                Err(error) => tracing::error!(%error, "cannot deliver the events for Nova"),
            }
            tokio::select! {
                () = outbox.wake.notified() => {}
                () = tokio::time::sleep(DELIVER_EVERY) => {}
            }
        }
    });
}
