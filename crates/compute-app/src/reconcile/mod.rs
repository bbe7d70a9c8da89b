//! Background loops, one per file. A loop may run late or skip a period; correctness never depends
//! on it.

pub mod confirm;
mod fleet;
pub mod networks;
pub mod nudge;
mod purge;
pub mod rest;
pub mod slow;

use std::time::Duration;

use crate::Compute;

/// Starts the loops. They end with the runtime.
pub fn start(compute: &Compute) {
    every(compute, Duration::from_secs(10), "fleet", fleet::run);
    every(compute, Duration::from_secs(1), "networks", networks::run);
    every(compute, Duration::from_secs(5), "nudge", nudge::run);
    every(compute, Duration::from_secs(10), "confirm", confirm::run);
    every(compute, Duration::from_secs(3600), "purge", purge::run);
    every(compute, Duration::from_secs(10), "slow", slow::run);
    every(compute, Duration::from_secs(30), "rest", rest::run);
    let shelved = Duration::try_from(compute.options.shelved_poll_interval).unwrap_or_default();
    if !shelved.is_zero() {
        every(compute, shelved, "shelved", rest::shelved);
    }
}

fn every<F, R>(compute: &Compute, period: Duration, name: &'static str, run: F)
where
    F: Fn(Compute) -> R + Send + 'static,
    R: Future<Output = Result<(), crate::Error>> + Send,
{
    let compute = compute.clone();
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = run(compute.clone()).await {
                tracing::warn!(loop_ = name, %error, "reconcile loop failed; it runs again after its period");
            }
        }
    });
}
