//! Bounded pools of threads for blocking work: one pool for each purpose.
//!
//! Tokio's own blocking pool is shared by everything in the process. If one purpose occupies all of
//! its threads, every other purpose waits. A [`Pool`] has threads of its own, so the database never
//! waits for image files, and neither of them waits for password hashes.
//!
//! Work runs from start to end on its thread. It must not wait for a client, another host or a lock
//! that a client can hold: the caller gathers what the work needs first, and hands it over.
//! This crate must never know what the work does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Semaphore;

/// Why work has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// All threads are occupied, and as much work waits as may.
    #[error("all threads for {0} are occupied and too much work waits for one")]
    Full(&'static str),
    /// The work panicked.
    #[error("work on a thread for {0} panicked")]
    Panicked(&'static str),
}

/// Threads for one purpose; cheap to clone. They start when there is work, and end when there has
/// been none for some seconds.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

struct Inner {
    purpose: &'static str,
    /// A runtime without tasks: only its blocking threads are used. `None` while it is dropped.
    runtime: Option<Runtime>,
    threads: Semaphore,
    /// Callers that wait for a thread, and how many may.
    waiting: AtomicUsize,
    most_waiting: usize,
}

impl Drop for Inner {
    /// Dropping a runtime waits for its threads, which async code must not do.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Pool {
    /// A pool of at most `threads` threads. Any number of callers may wait for one.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new(purpose: &'static str, threads: usize) -> std::io::Result<Self> {
        Self::with_waiting(purpose, threads, usize::MAX)
    }

    /// A pool in which at most `most_waiting` callers wait for a thread. [`Error::Full`] answers
    /// any more.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn with_waiting(
        purpose: &'static str,
        threads: usize,
        most_waiting: usize,
    ) -> std::io::Result<Self> {
        let threads = threads.max(1);
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(threads)
            .thread_name(purpose)
            .build()?;
        Ok(Self(Arc::new(Inner {
            purpose,
            runtime: Some(runtime),
            threads: Semaphore::new(threads),
            waiting: AtomicUsize::new(0),
            most_waiting,
        })))
    }

    /// Runs `work` on a thread of the pool. Callers are served in the order of their calls, and hold
    /// no thread while they wait. Work that has begun runs to its end, even when the caller goes
    /// away.
    ///
    /// # Errors
    /// [`Error::Full`] before the work began, [`Error::Panicked`] when it did not end well.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let panicked = Error::Panicked(self.0.purpose);
        let seat = match self.0.threads.try_acquire() {
            Ok(seat) => seat,
            Err(_) => self.wait().await?,
        };
        seat.forget();
        let seat = Seat(Arc::clone(&self.0));
        let caller = Handle::try_current();
        let runtime = self.0.runtime.as_ref().ok_or(panicked)?;
        let task = runtime.spawn_blocking(move || {
            let _seat = seat;
            // The work sees the runtime of its caller, not the one that nobody drives.
            let _entered = caller.as_ref().ok().map(Handle::enter);
            work()
        });
        task.await.map_err(|_| panicked)
    }

    /// Has `work` run when a thread is free, and does not wait for it. For the end of something, such
    /// as a file to remove: dropping the pool drops work that has not begun.
    pub fn start(&self, work: impl FnOnce() + Send + 'static) {
        if let Some(runtime) = &self.0.runtime {
            drop(runtime.spawn_blocking(work));
        }
    }

    async fn wait(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Error> {
        let inner = &*self.0;
        let turn = Waiting(&inner.waiting);
        if inner.waiting.fetch_add(1, Ordering::Relaxed) >= inner.most_waiting {
            return Err(Error::Full(inner.purpose));
        }
        let seat = inner.threads.acquire().await;
        drop(turn);
        seat.map_err(|_| Error::Full(inner.purpose))
    }
}

/// Gives the thread's place back when the work has ended, in whatever way.
struct Seat(Arc<Inner>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.threads.add_permits(1);
    }
}

/// Counts a waiting caller until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Work that occupies a thread until the returned sender is dropped.
    fn stuck() -> (mpsc::Sender<()>, impl FnOnce() + Send + 'static) {
        let (end, ended) = mpsc::channel::<()>();
        (end, move || {
            let _ = ended.recv();
        })
    }

    #[tokio::test]
    async fn a_full_pool_does_not_hold_up_another() {
        let (files, database) = (Pool::new("files", 2).unwrap(), Pool::new("database", 1).unwrap());
        let mut ends = Vec::new();
        let mut runs = Vec::new();
        for _ in 0..5 {
            let (end, work) = stuck();
            ends.push(end);
            let files = files.clone();
            runs.push(tokio::spawn(async move { files.run(work).await }));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        let answer = tokio::time::timeout(Duration::from_secs(5), database.run(|| 7)).await;
        assert_eq!(answer.expect("the database's thread is free"), Ok(7));
        assert!(runs.iter().all(|run| !run.is_finished()));
        drop(ends);
        for run in runs {
            assert_eq!(run.await.unwrap(), Ok(()));
        }
    }

    #[tokio::test]
    async fn one_caller_too_many_is_refused_and_a_caller_that_gave_up_makes_room() {
        let pool = Pool::with_waiting("tests", 1, 1).unwrap();
        let (end, work) = stuck();
        let own = pool.clone();
        let first = tokio::spawn(async move { own.run(work).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        let own = pool.clone();
        let second = tokio::spawn(async move { own.run(|| ()).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(pool.run(|| ()).await, Err(Error::Full("tests")));
        second.abort();
        assert!(second.await.unwrap_err().is_cancelled());
        let own = pool.clone();
        let third = tokio::spawn(async move { own.run(|| ()).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(end);
        assert_eq!((first.await.unwrap(), third.await.unwrap()), (Ok(()), Ok(())));
    }

    #[tokio::test]
    async fn work_that_panics_gives_its_thread_back() {
        let pool = Pool::new("tests", 1).unwrap();
        for _ in 0..3 {
            assert_eq!(
                pool.run(|| panic!("on purpose")).await,
                Err::<(), _>(Error::Panicked("tests"))
            );
        }
        assert_eq!(pool.run(|| 1).await, Ok(1));
    }

    #[tokio::test]
    async fn work_goes_on_when_its_caller_goes_away() {
        let pool = Pool::new("tests", 2).unwrap();
        let (done, finished) = mpsc::channel();
        let own = pool.clone();
        let run = tokio::spawn(async move {
            own.run(move || {
                std::thread::sleep(Duration::from_millis(50));
                let _ = done.send(());
            })
            .await
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        run.abort();
        drop(pool);
        finished.recv_timeout(Duration::from_secs(5)).expect("the work ended");
    }

    #[tokio::test]
    async fn work_sees_the_runtime_of_its_caller() {
        let pool = Pool::new("tests", 1).unwrap();
        let task = pool.run(|| tokio::spawn(async { 3 })).await.unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(5), task).await;
        assert_eq!(answer.expect("somebody drives the task").unwrap(), 3);
    }
}
