//! Bounded pools of threads for blocking work: one pool for each purpose.
//!
//! Tokio's own blocking pool is shared by the whole process, so a purpose that occupies it stalls
//! all others. A [`Pool`] has its own threads: the database never waits for image files, and
//! neither waits for password hashes.
//!
//! Work runs from start to end on its thread. It must not wait for a client, another host, or a
//! lock that a client can hold: the caller gathers the input first. This crate must never know the
//! content of the work.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Semaphore;

/// The reason why work has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// All threads are busy and the queue is full.
    #[error("the thread pool for {0} is full")]
    Full(&'static str),
    /// The work panicked.
    #[error("work in the thread pool for {0} panicked")]
    Panicked(&'static str),
}

/// Threads for one purpose; cheap to clone. They start on demand and end after some idle seconds.
#[derive(Clone)]
pub struct Pool(Arc<Inner>);

struct Inner {
    purpose: &'static str,
    /// A runtime without tasks: only its blocking threads are used. `None` during drop.
    runtime: Option<Runtime>,
    threads: Semaphore,
    /// Waiting callers and their limit.
    waiting: AtomicUsize,
    most_waiting: usize,
}

impl Drop for Inner {
    /// Dropping a runtime blocks until its threads end, which async code must not do.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Pool {
    /// A pool of at most `threads` threads and any number of waiting callers.
    ///
    /// # Errors
    /// If the system refuses to create it.
    pub fn new(purpose: &'static str, threads: usize) -> std::io::Result<Self> {
        Self::with_waiting(purpose, threads, usize::MAX)
    }

    /// A pool with at most `most_waiting` waiting callers; [`Error::Full`] refuses any more.
    ///
    /// # Errors
    /// If the system refuses to create it.
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

    /// Runs `work` on a thread of the pool. Callers are served in order. Work that has begun runs to
    /// its end, even if the caller is dropped.
    ///
    /// # Errors
    /// [`Error::Full`] if the work was not started, [`Error::Panicked`] if it panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let panicked = Error::Panicked(self.0.purpose);
        let permit = match self.0.threads.try_acquire() {
            Ok(permit) => permit,
            Err(_) => self.wait().await?,
        };
        permit.forget();
        let permit = Permit(Arc::clone(&self.0));
        let caller = Handle::try_current();
        let runtime = self.0.runtime.as_ref().ok_or(panicked)?;
        let task = runtime.spawn_blocking(move || {
            let _permit = permit;
            // The work sees its caller's runtime, not the pool's, which runs no tasks.
            let _entered = caller.as_ref().ok().map(Handle::enter);
            work()
        });
        task.await.map_err(|_| panicked)
    }

    /// Starts `work` without waiting for it. For cleanup such as deleting a file: dropping the pool
    /// drops work that has not begun.
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
        let permit = inner.threads.acquire().await;
        drop(turn);
        permit.map_err(|_| Error::Full(inner.purpose))
    }
}

/// Returns the thread's permit when dropped, also after a panic.
struct Permit(Arc<Inner>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.threads.add_permits(1);
    }
}

/// Counts a waiting caller until dropped.
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

    /// Work that blocks a thread until the returned sender is dropped.
    fn stuck() -> (mpsc::Sender<()>, impl FnOnce() + Send + 'static) {
        let (end, ended) = mpsc::channel::<()>();
        (end, move || {
            let _ = ended.recv();
        })
    }

    #[tokio::test]
    async fn a_full_pool_does_not_block_another() {
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
    async fn the_queue_is_bounded_and_a_cancelled_caller_frees_its_place() {
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
    async fn work_that_panics_returns_its_thread() {
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
    async fn work_continues_when_its_caller_is_dropped() {
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
        assert_eq!(answer.expect("the caller's runtime drives the task").unwrap(), 3);
    }
}
