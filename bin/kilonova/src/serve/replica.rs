//! Several processes on one PostgreSQL: each shows what the others commit.
//!
//! A short poll of the change log, not LISTEN/NOTIFY: a notification takes a lock of the whole
//! cluster at each commit, and the poll is one small read whatever happens. Missing some costs
//! nothing but time, for a claim always asks the database.

use std::time::Duration;

use kilonova_placement::{Followed, World};
use kilonova_store::Store;
use kilonova_wire::time::now_micros;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// How often the change log is looked at; what another process commits is seen after twice this.
const LOOK: Duration = Duration::from_millis(30);
/// The pause after a look that failed, or that had to read everything.
const PAUSE: Duration = Duration::from_secs(1);
/// How long notes are kept. A process that was stopped for longer reads everything anew.
const KEPT_MICROS: i64 = 15 * 60 * 1_000_000;
const FORGET: Duration = Duration::from_secs(60);

/// Starts the loops; they end with the runtime.
pub(super) fn start(store: &Store, world: &World) {
    if store.dialect() == "postgresql" {
        tokio::spawn(follow(store.clone(), world.clone()));
    }
    tokio::spawn(forget(store.clone()));
}

async fn follow(store: Store, world: World) {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        ticks.tick().await;
        match world.follow(&store).await {
            Ok(Followed::Trees(_)) => failing = false,
            Ok(Followed::Everything) => {
                tracing::info!("this process was away, or much has changed: providers read anew");
                failing = false;
                sleep(PAUSE).await;
            }
            Err(error) => {
                if !failing {
                    tracing::warn!(%error, "cannot see what other processes commit; will try again");
                }
                failing = true;
                sleep(PAUSE).await;
            }
        }
    }
}

async fn forget(store: Store) {
    let mut ticks = interval(FORGET);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        loop {
            match World::forget(&store, now_micros() - KEPT_MICROS).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(%error, "old notes of the change log stay; will try again");
                    break;
                }
            }
        }
    }
}
