//! Threads for blocking libvirt calls, bounded in number.
//!
//! A call returns when libvirtd answers. A call that exceeds its limit is abandoned: its thread
//! keeps its permit until the call returns. When all permits are taken, callers time out too
//! instead of blocking.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

/// Maximum number of concurrent calls.
const MAX_CALLS: usize = 16;

#[derive(Debug, Clone)]
pub(crate) struct Pool {
    permits: Arc<Semaphore>,
}

/// The call did not return in time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TimedOut;

impl Pool {
    pub(crate) fn new() -> Self {
        Self { permits: Arc::new(Semaphore::new(MAX_CALLS)) }
    }

    /// Runs a call on its own thread and waits for it up to `limit`.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, TimedOut> {
        let end = Instant::now() + limit;
        let permit = timeout_at(end, Arc::clone(&self.permits).acquire_owned());
        let permit = permit.await.map_err(|_| TimedOut)?.map_err(|_| TimedOut)?;
        let (sender, receiver) = oneshot::channel();
        let thread = std::thread::Builder::new().name("libvirt".into()).spawn(move || {
            let result = call();
            drop(permit);
            // The caller may have timed out.
            let _ = sender.send(result);
        });
        thread.map_err(|_| TimedOut)?;
        timeout_at(end, receiver).await.map_err(|_| TimedOut)?.map_err(|_| TimedOut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_hanging_call_does_not_block_others() {
        let pool = Pool::new();
        let (release, pause_guest) = std::sync::mpsc::channel::<()>();
        let pause_guest = Arc::new(std::sync::Mutex::new(pause_guest));
        let short = Duration::from_millis(20);
        for _ in 0..MAX_CALLS {
            let pause_guest = Arc::clone(&pause_guest);
            let hung = move || pause_guest.lock().expect("the lock is not poisoned").recv().is_ok();
            assert_eq!(pool.run(short, hung).await, Err(TimedOut));
        }
        assert_eq!(pool.run(short, || 1).await, Err(TimedOut), "all permits are taken");
        drop(release);
        assert_eq!(pool.run(Duration::from_secs(30), || 2).await, Ok(2), "and free again");
    }
}
