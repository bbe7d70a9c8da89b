//! Background loops, one per file. A loop may run late or skip a period; correctness never depends
//! on it.
//!
//! Loops that work on a controller's own memory run in every controller. The others run in the
//! controller that holds the lease, which fences each of their transactions: a controller that was
//! suspended cannot act on stale reads.

pub mod confirm;
pub mod consoles;
pub mod demand;
pub mod drains;
pub mod files;
mod fleet;
pub mod glance;
pub mod networks;
pub mod neutron;
pub mod nudge;
mod purge;
pub mod rest;
pub mod routers;
pub mod samples;
pub mod slow;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kilonova_flow::Lease;
use tokio::sync::Notify;

use crate::{Compute, boot, volumes};

/// How long a loop waits for further signals after the first one.
const TOGETHER: Duration = Duration::from_millis(20);

/// Starts the loops. They end with the runtime.
pub fn start(compute: &Compute, lease: &Lease) {
    let rounds = AtomicU64::new(0);
    let run = move |compute| fleet::run(compute, rounds.fetch_add(1, Ordering::Relaxed));
    every(compute, None, Duration::from_secs(10), "fleet", run);
    let signal = Arc::clone(&compute.network_news);
    every_or_when(compute, None, Duration::from_secs(1), signal, "networks", networks::run);
    every(compute, None, Duration::from_secs(30), "demand", demand::run);
    if compute.neutron.is_some() {
        tokio::spawn(crate::ports::external::run(compute.clone()));
    }
    let fence = lease.clone();
    let store = compute.store.guarded(move |tx| fence.fence(tx));
    let (compute, lease) = (&Compute { store, ..compute.clone() }, Some(lease));
    if let Some(cloud) = compute.images.glance() {
        let signal = Arc::clone(&cloud.work);
        every_or_when(compute, lease, Duration::from_secs(2), signal, "glance", glance::run);
    }
    if let Some(cinder) = &compute.volumes {
        let signal = Arc::clone(&cinder.news);
        let period = Duration::from_secs(2);
        every_or_when(compute, lease, period, signal, "volumes", volumes::run);
        let signal = Arc::clone(&cinder.unwanted);
        every_or_when(compute, lease, period, signal, "snapshots", volumes::sweep_snapshots);
    }
    if compute.neutron.is_some() {
        every(compute, lease, Duration::from_secs(2), "neutron", neutron::run);
        every(compute, lease, Duration::from_secs(3600), "ports", neutron::sweep);
    }
    every(compute, lease, Duration::from_secs(5), "nudge", nudge::run);
    if compute.neutron.is_none() {
        let page = routers::Page::default();
        let run = move |compute| routers::run(compute, page.clone());
        every(compute, lease, Duration::from_secs(1), "routers", run);
    }
    every(compute, lease, Duration::from_secs(1), "drains", drains::run);
    every(compute, lease, Duration::from_secs(10), "confirm", confirm::run);
    every(compute, lease, Duration::from_secs(3600), "purge", purge::run);
    every(compute, lease, Duration::from_secs(60), "consoles", consoles::run);
    every(compute, lease, Duration::from_secs(10), "slow", slow::run);
    every(compute, lease, Duration::from_secs(10), "files", files::run);
    let waiting = |compute| boot::end_overdue(compute, boot::GRACE);
    every(compute, lease, Duration::from_secs(5), "waiting", waiting);
    every(compute, lease, Duration::from_secs(60), "samples", samples::run);
    every(compute, lease, Duration::from_secs(30), "rest", rest::run);
    let shelved = Duration::try_from(compute.options.shelved_poll_interval).unwrap_or_default();
    if !shelved.is_zero() {
        every(compute, lease, shelved, "shelved", rest::shelved);
    }
}

/// Runs a loop; with a lease, only while this process holds it.
fn every<F, R>(
    compute: &Compute,
    lease: Option<&Lease>,
    period: Duration,
    name: &'static str,
    run: F,
) where
    F: Fn(Compute) -> R + Send + 'static,
    R: Future<Output = Result<(), crate::Error>> + Send,
{
    every_or_when(compute, lease, period, Arc::default(), name, run);
}

/// Runs a loop after each period, and soon after a signal.
fn every_or_when<F, R>(
    compute: &Compute,
    lease: Option<&Lease>,
    period: Duration,
    signal: Arc<Notify>,
    name: &'static str,
    run: F,
) where
    F: Fn(Compute) -> R + Send + 'static,
    R: Future<Output = Result<(), crate::Error>> + Send,
{
    let (compute, lease) = (compute.clone(), lease.cloned());
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                // Closely following signals are combined.
                () = signal.notified() => tokio::time::sleep(TOGETHER).await,
            }
            if lease.as_ref().is_some_and(|lease| !lease.is_held()) {
                continue;
            }
            if let Err(error) = run(compute.clone()).await {
                tracing::warn!(loop_ = name, %error, "reconcile loop failed; it runs again after its period");
            }
        }
    });
}
