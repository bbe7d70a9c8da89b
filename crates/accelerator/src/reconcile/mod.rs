//! The loops of this service. Each does one step by a function that a test can call, and is told
//! nothing that is not in the rows.

mod deliver;
mod expire;
mod lost;
mod tidy;

use std::time::Duration;

pub use deliver::{Delivered, deliver};
pub use expire::{Expired, expire};
pub use lost::{Lost, lost};
pub use tidy::tidy;

use crate::State;

/// An unbound request that nobody has touched for so long is an orphan.
pub const UNBOUND_KEPT: Duration = Duration::from_secs(24 * 3600);
/// How long it is told who held which handle.
pub const CHANGES_KEPT: Duration = Duration::from_secs(90 * 24 * 3600);

const EXPIRE_EVERY: Duration = Duration::from_secs(600);
const DELIVER_EVERY: Duration = Duration::from_secs(1);
/// Between two rounds over the requests of instances elsewhere.
const LOST_EVERY: Duration = Duration::from_secs(30);
const TIDY_EVERY: Duration = Duration::from_secs(2);

/// Starts the loops; they end with the runtime.
pub fn start(state: &State) {
    let store = state.store.clone();
    tokio::spawn(async move {
        loop {
            match expire(&store, UNBOUND_KEPT, CHANGES_KEPT).await {
                Ok(done) if done.requests > 0 => {
                    tracing::info!(requests = done.requests, "orphaned requests are gone");
                }
                Ok(_) => {}
                Err(error) => tracing::error!(%error, "cannot clear orphaned requests away"),
            }
            tokio::time::sleep(EXPIRE_EVERY).await;
        }
    });
    let tidied = state.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(TIDY_EVERY).await;
            match tidy(&tidied).await {
                Ok(done) if done.cleaned + done.again > 0 => {
                    let (cleaned, again) = (done.cleaned, done.again);
                    tracing::info!(cleaned, again, "parked devices are seen to");
                }
                Ok(_) => {}
                Err(error) => tracing::error!(%error, "cannot see to parked devices"),
            }
        }
    });
    let (store, Some(outbox)) = (state.store.clone(), state.outbox.clone()) else { return };
    let (searched, nova) = (state.clone(), outbox.nova.clone());
    tokio::spawn(async move {
        let mut next = 0;
        loop {
            tokio::time::sleep(LOST_EVERY).await;
            match lost(&searched, &*nova, next).await {
                Ok(done) => next = done.next,
                Err(error) => tracing::error!(%error, "cannot look for instances that are gone"),
            }
        }
    });
    tokio::spawn(async move {
        loop {
            match deliver(&store, &*outbox.nova).await {
                Ok(done) if done.told > 0 => continue,
                Ok(_) => {}
                Err(error) => tracing::error!(%error, "cannot read the events for Nova"),
            }
            tokio::select! {
                () = outbox.wake.notified() => {}
                () = tokio::time::sleep(DELIVER_EVERY) => {}
            }
        }
    });
}
