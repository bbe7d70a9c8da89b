//! The follower of a process: polls the log and passes new entries to the subscribers.
//!
//! On PostgreSQL numbers and transaction ids become visible out of order, so an entry below the
//! last one seen may still appear. The follower keeps the snapshot of its last poll. Each poll
//! reads only the entries of transactions that had not ended in that snapshot, so a long
//! transaction neither delays entries nor causes repeated reads.
//!
//! A snapshot is valid for one run of one server. After a restart, a promotion or a restore the
//! follower reloads everything, because memory may be ahead of the database.
//!
//! It polls instead of using LISTEN/NOTIFY, because a notification locks the whole cluster at each
//! commit, and the poll is one small read.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kilonova_store::Store;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::db::{self, Behind, Entry, ReadResult, Seen};

/// The pause between two polls; another process's commit is applied after at most twice this.
const PAUSE: Duration = Duration::from_millis(25);
/// The pause after a slow poll, as a multiple of the poll's duration.
const SHARE: u32 = 4;
/// The pause after a failure, and the longest pause after a success: a process that was suspended
/// during a poll measures a poll of minutes, and its memory must not stay stale for that long.
const LONG_PAUSE: Duration = Duration::from_secs(1);
/// Above this number of entries a complete reload is cheaper.
const MAX_ENTRIES: i64 = 50_000;

/// Maximum time that [`Progress::catch_up`] waits.
const CATCH_UP: Duration = Duration::from_secs(1);

/// Why a subscriber could not apply a change.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The future of a subscriber.
pub type Applied<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

/// A copy in memory that follows the log. Both functions must be idempotent: after a failure the
/// follower passes the same entries again.
pub trait Subscriber: Send + Sync {
    /// Applies entries of any topic, in the order of their positions. Some may be this process's
    /// own.
    fn apply<'a>(&'a self, entries: &'a [Entry]) -> Applied<'a>;

    /// Reads everything again, because entries were lost.
    fn reload(&self) -> Applied<'_>;

    /// Runs once after a reload that succeeded for every subscriber, unlike [`Self::reload`], which the follower repeats
    /// after a failure. It must not wait for the database.
    fn reloaded(&self) {}
}

/// The result of a poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    /// These entries were applied; often none.
    Entries(Vec<Entry>),
    /// Everything was read again.
    Everything(Behind),
}

/// The progress of this process's follower; cheap to clone.
#[derive(Debug, Clone)]
pub struct Progress(Arc<Reached>);

#[derive(Debug)]
struct Reached {
    /// The beginning of the last poll that succeeded.
    at: Mutex<Instant>,
    applied: AtomicU64,
    /// The number of polls that have begun.
    begun: AtomicU64,
    /// The number of the last poll that succeeded.
    done: watch::Sender<u64>,
    /// Ends the pause before the next poll.
    wake: Notify,
}

impl Progress {
    fn new() -> Self {
        Self(Arc::new(Reached {
            at: Mutex::new(Instant::now()),
            applied: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            done: watch::Sender::new(0),
            wake: Notify::new(),
        }))
    }

    /// Returns once all commits before the call are applied, or after a second. For a caller that
    /// is about to refuse a request on the basis of memory.
    pub async fn catch_up(&self) {
        let mut done = self.0.done.subscribe();
        // A poll with a higher number begins after this call, so it sees all commits before the
        // call.
        let last = self.0.begun.load(Ordering::SeqCst);
        self.0.wake.notify_one();
        drop(timeout(CATCH_UP, done.wait_for(|number| *number > last)).await);
    }

    /// The time since this process's memory was last known to be current.
    pub fn lag(&self) -> Duration {
        self.0.at.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// The number of entries that were applied.
    pub fn applied(&self) -> u64 {
        self.0.applied.load(Ordering::Relaxed)
    }

    /// The number of polls.
    pub fn polls(&self) -> u64 {
        self.0.begun.load(Ordering::Relaxed)
    }

    fn begin(&self) -> u64 {
        self.0.begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn reached(&self, number: u64, begun: Instant, entries: usize) {
        *self.0.at.lock().unwrap_or_else(PoisonError::into_inner) = begun;
        self.0.applied.fetch_add(entries as u64, Ordering::Relaxed);
        self.0.done.send_replace(number);
    }
}

/// The follower of a process. Open it before the subscribers load, so that it misses no commit in
/// between.
pub struct Follower {
    store: Store,
    seen: Seen,
    subscribers: Vec<Arc<dyn Subscriber>>,
    progress: Progress,
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl Follower {
    /// A follower that starts at the present end of the log.
    ///
    /// # Errors
    /// Store errors only.
    pub async fn open(store: &Store) -> Result<Self, kilonova_store::Error> {
        Ok(Self {
            store: store.clone(),
            seen: store.read(db::end).await?,
            subscribers: Vec::new(),
            progress: Progress::new(),
        })
    }

    /// Adds a subscriber. Subscribers apply entries in the order in which they were added.
    pub fn subscribe(&mut self, subscriber: Arc<dyn Subscriber>) {
        self.subscribers.push(subscriber);
    }

    /// The progress of this follower.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Applies the commits since the last call.
    ///
    /// # Errors
    /// Store errors and those of subscribers. Every subscriber has received the entries; the next call
    /// passes them again.
    pub async fn poll(&mut self) -> Result<Followed, Failure> {
        let (number, begun, seen) = (self.progress.begin(), Instant::now(), self.seen.clone());
        let news = self.store.read(move |tx| db::news(tx, &seen, MAX_ENTRIES)).await?;
        let (seen, rows) = match news {
            ReadResult::Behind(why) => {
                self.reload().await?;
                self.progress.reached(number, begun, 0);
                return Ok(Followed::Everything(why));
            }
            ReadResult::Rows(seen, rows) => (seen, rows),
        };
        let entries: Vec<Entry> = rows.into_iter().filter_map(|row| row.entry).collect();
        if !entries.is_empty() {
            let mut failure = None;
            for subscriber in &self.subscribers {
                failure = failure.or(subscriber.apply(&entries).await.err());
            }
            failure.map_or(Ok(()), Err)?;
        }
        self.seen = seen;
        self.progress.reached(number, begun, entries.len());
        Ok(Followed::Entries(entries))
    }

    async fn reload(&mut self) -> Result<(), Failure> {
        let seen = self.store.read(db::end).await?;
        let mut failure = None;
        for subscriber in &self.subscribers {
            failure = failure.or(subscriber.reload().await.err());
        }
        failure.map_or(Ok(()), Err)?;
        self.seen = seen;
        self.subscribers.iter().for_each(|subscriber| subscriber.reloaded());
        Ok(())
    }

    /// Polls until the runtime shuts down.
    pub async fn run(mut self) -> std::convert::Infallible {
        let mut failing = false;
        loop {
            let begun = Instant::now();
            let followed = self.poll().await;
            match &followed {
                Ok(Followed::Entries(_)) if failing => {
                    tracing::info!("following the commits of other controllers again");
                }
                Ok(Followed::Entries(_)) => {}
                Ok(Followed::Everything(why)) => tracing::info!(
                    reason = why.as_str(),
                    "reloaded everything that this controller keeps in memory"
                ),
                Err(error) if failing => {
                    tracing::debug!(%error, "still cannot follow the commits of other controllers");
                }
                Err(error) => tracing::warn!(
                    %error,
                    lag = ?self.progress.lag(),
                    "cannot follow the commits of other controllers; memory becomes stale; \
                     retrying every second: if this lasts, check the database"
                ),
            }
            failing = followed.is_err();
            if failing {
                sleep(LONG_PAUSE).await;
            } else {
                let pause = pause_after(begun.elapsed());
                drop(timeout(pause, self.progress.0.wake.notified()).await);
            }
        }
    }
}

/// The pause after a poll that took this long.
fn pause_after(poll: Duration) -> Duration {
    poll.saturating_mul(SHARE).clamp(PAUSE, LONG_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_database_gets_longer_pauses_and_a_stopped_process_does_not() {
        for (poll, pause) in [(0, 25), (5, 25), (100, 400), (3_000, 1_000), (90_000, 1_000)] {
            let after = pause_after(Duration::from_millis(poll));
            assert_eq!(after, Duration::from_millis(pause), "after a poll of {poll} ms");
        }
    }
}
