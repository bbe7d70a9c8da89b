//! The commits of this process that are in progress, so that a reader of memory can wait for their
//! hooks.
//!
//! A commit is visible to other transactions before its hooks have changed memory. A caller that has read the commit
//! from the database and then decides from memory would use the state before the commit. This module never delays a
//! commit.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Maximum wait: a commit whose connection was lost may stay in progress for a long time.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The commits in progress; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Commits(Arc<Inner>);

#[derive(Default)]
struct Inner {
    open: Mutex<Open>,
    /// The number of the oldest commit in progress, or of the next commit if none is in progress.
    oldest: watch::Sender<u64>,
}

#[derive(Default)]
struct Open {
    next: u64,
    numbers: BTreeSet<u64>,
}

/// A commit in progress. It ends when this value is dropped: after its hooks have run, or after it
/// has failed.
pub(crate) struct Commit {
    commits: Commits,
    number: u64,
}

impl Commits {
    /// Call this before the commit is sent to the database.
    pub fn begin(&self) -> Commit {
        let mut open = self.lock();
        let number = open.next;
        open.next += 1;
        open.numbers.insert(number);
        Commit { commits: self.clone(), number }
    }

    /// Waits, for at most a second, until every commit that began before this call has ended.
    pub async fn settled(&self) {
        let next = self.lock().next;
        let mut oldest = self.0.oldest.subscribe();
        drop(timeout(MAX_WAIT, oldest.wait_for(|oldest| *oldest >= next)).await);
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Commit {
    fn drop(&mut self) {
        let mut open = self.commits.lock();
        open.numbers.remove(&self.number);
        let oldest = open.numbers.first().copied().unwrap_or(open.next);
        // Under the lock, so that a later drop publishes later.
        self.commits.0.oldest.send_replace(oldest);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_settled(settled: &mut std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
        settled.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[tokio::test]
    async fn a_reader_waits_for_the_earlier_commits_only() {
        let commits = Commits::default();
        let (first, second) = (commits.begin(), commits.begin());
        let mut settled = std::pin::pin!(commits.settled());
        assert!(!is_settled(&mut settled));
        let later = commits.begin();
        drop(second);
        assert!(!is_settled(&mut settled), "the first commit is in progress");
        drop(first);
        assert!(is_settled(&mut settled), "only a later commit is in progress");
        drop(later);
        commits.settled().await;
    }

    #[tokio::test]
    async fn a_commit_that_hangs_delays_a_reader_for_a_second_at_most() {
        let commits = Commits::default();
        let _hangs = commits.begin();
        let begun = tokio::time::Instant::now();
        commits.settled().await;
        assert!(begun.elapsed() >= MAX_WAIT, "{:?}", begun.elapsed());
    }
}
