//! The loops of this service. Each does one step by a function that a test can call, and is told
//! nothing that is not in the rows.

mod deliver;
mod expire;
mod tidy;

use std::time::Duration;

pub use deliver::{Delivered, deliver};
pub use expire::{Expired, expire};
pub use tidy::tidy;

use crate::State;

/// An unbound request that nobody has touched for so long is an orphan.
pub const UNBOUND_KEPT: Duration = Duration::from_secs(24 * 3600);
/// How long it is told who held which handle.
pub const CHANGES_KEPT: Duration = Duration::from_secs(90 * 24 * 3600);

const EXPIRE_EVERY: Duration = Duration::from_secs(600);
const DELIVER_EVERY: Duration = Duration::from_secs(1);
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
