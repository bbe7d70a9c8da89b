//! The lease on the loops that one controller of the cloud runs: purges, retries of operations,
//! expired states, requests to an external Nova.
//!
//! The holder renews it, and releases it when it shuts down. A controller that dies loses it after
//! [`PERIOD`], which only delays those loops.

use std::time::Duration;

use kilonova_compute_nodes::{Drain, Phase};
use kilonova_flow::Lease;
use kilonova_store::Store;
use tokio::task::JoinHandle;

/// The lease's name in the database.
pub const NAME: &str = "loops";
/// How long the lease lasts without renewal.
pub const PERIOD: Duration = Duration::from_secs(10);
/// The interval of renewals, and of attempts to take the lease over.
const RENEW: Duration = Duration::from_secs(2);
/// The time limit for releasing the lease.
const RELEASE: Duration = Duration::from_millis(500);

/// The task that holds the lease.
pub(super) struct LeaseTask(JoinHandle<()>);

impl LeaseTask {
    /// Waits until the lease is released.
    pub(super) async fn ended(self) {
        if tokio::time::timeout(RELEASE, self.0).await.is_err() {
            tracing::warn!("could not release the lease on the loops; it will expire");
        }
    }
}

/// Acquires the lease if it is free, and holds it until the controller shuts down.
pub(super) async fn start(store: &Store, mut drain: Drain) -> (Lease, LeaseTask) {
    let lease = Lease::new(NAME, uuid::Uuid::new_v4().to_string(), PERIOD);
    let mut seen = LastRenewal::default();
    renew(&lease, store, &mut seen).await;
    let (ours, store) = (lease.clone(), store.clone());
    let task = tokio::spawn(async move {
        loop {
            tokio::select! {
                () = tokio::time::sleep(RENEW) => renew(&ours, &store, &mut seen).await,
                () = drain.reached(Phase::Draining) => break,
            }
        }
        if let Err(error) = ours.release(&store).await {
            tracing::warn!(%error, "could not release the lease on the loops; it will expire");
        }
    });
    (lease, LeaseTask(task))
}

/// The state that the last renewal has logged.
#[derive(Default)]
struct LastRenewal {
    holds: bool,
    failing: bool,
}

/// Renews the lease, and logs what has changed since the last time.
async fn renew(lease: &Lease, store: &Store, seen: &mut LastRenewal) {
    let renewed = lease.renew(store).await;
    let failed = std::mem::replace(&mut seen.failing, renewed.is_err());
    let held = seen.holds;
    match renewed {
        Ok(holds) => {
            seen.holds = holds;
            if failed {
                tracing::info!("can renew the lease on the loops again");
            }
            if holds && !held {
                tracing::info!("this controller runs the loops of the cloud");
            } else if held && !holds {
                tracing::warn!("another controller has taken over the loops of the cloud");
            }
        }
        // The next successful renewal shows whether another controller has taken over.
        Err(error) => {
            if failed {
                tracing::debug!(%error, "still cannot renew the lease on the loops");
            } else {
                tracing::warn!(%error, "cannot renew the lease on the loops; retrying");
            }
        }
    }
}
