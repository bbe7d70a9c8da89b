//! Several controllers on one PostgreSQL: each follows what the others commit.
//!
//! It polls the change log instead of LISTEN/NOTIFY, because a notification locks the whole cluster at
//! each commit, and the poll is one small read. A delayed change costs nothing but time, because a claim
//! always checks the database.

use std::time::Duration;

use jiff::SignedDuration;
use kilonova_placement::{Followed, World};
use kilonova_store::Store;
use kilonova_wire::time;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// The polling interval; another process's commit is visible after at most twice this.
const LOOK: Duration = Duration::from_millis(30);
/// The pause after a failure or a complete reload.
const PAUSE: Duration = Duration::from_secs(1);
/// How long changes are kept. A process that was stopped for longer reloads everything.
const KEPT: SignedDuration = SignedDuration::from_mins(15);
const FORGET: Duration = Duration::from_secs(60);

/// Starts the loops; they end with the runtime.
pub(super) fn start(store: &Store, world: &World) {
    if store.dialect() == "postgresql" {
        tokio::spawn(follow(store.clone(), world.clone()));
    }
    tokio::spawn(prune(store.clone()));
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
                tracing::info!("too many changes since the last poll: reloading all providers");
                failing = false;
                sleep(PAUSE).await;
            }
            Err(error) => {
                if !failing {
                    tracing::warn!(%error, "cannot follow other controllers' commits; retrying");
                }
                failing = true;
                sleep(PAUSE).await;
            }
        }
    }
}

async fn prune(store: Store) {
    let mut ticks = interval(FORGET);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        loop {
            match World::prune(&store, time::before(time::now(), KEPT)).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(%error, "cannot prune the change log; retrying later");
                    break;
                }
            }
        }
    }
}
