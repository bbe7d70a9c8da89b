//! Several controllers on one PostgreSQL: each follows the commits of the others. A delayed change is
//! harmless, because a transaction always checks the database.

use std::time::Duration;

use jiff::SignedDuration;
use kilonova_changes::{Follower, Progress};
use kilonova_flow::Lease;
use kilonova_store::{Store, System};
use kilonova_wire::time;
use tokio::time::{MissedTickBehavior, interval};

/// How long changes are kept. A process that was stopped for longer reloads everything.
const KEPT: SignedDuration = SignedDuration::from_mins(15);
const FORGET: Duration = Duration::from_secs(60);

/// Starts the loops; they end with the runtime. Returns the progress of the follower; `None` on SQLite,
/// which has only one controller.
pub(super) fn start(store: &Store, follower: Follower, lease: &Lease) -> Option<Progress> {
    tokio::spawn(prune(store.clone(), lease.clone()));
    (store.system() == System::Postgres).then(|| {
        let progress = follower.progress();
        tokio::spawn(async move { match follower.run().await {} });
        progress
    })
}

/// Deletes old changes, in the controller that holds the lease.
async fn prune(store: Store, lease: Lease) {
    let fence = lease.clone();
    let store = store.guarded(move |tx| fence.fence(tx));
    let mut ticks = interval(FORGET);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        ticks.tick().await;
        if !lease.is_held() {
            continue;
        }
        loop {
            let pruned = kilonova_changes::prune(&store, time::before(time::now(), KEPT)).await;
            match &pruned {
                Ok(_) if failing => tracing::info!("pruned the change log after failures"),
                Ok(_) => {}
                Err(error) if failing => {
                    tracing::debug!(%error, "still cannot prune the change log");
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot prune the change log; retrying later");
                }
            }
            failing = pruned.is_err();
            if !matches!(pruned, Ok(true)) {
                break;
            }
        }
    }
}
