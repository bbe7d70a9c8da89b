//! Threads for calls that block, so many at most.
//!
//! libvirt's calls return when libvirtd has answered. One that does not answer in time is given up:
//! its thread stays until the call returns, and with it its place. When all places are taken, calls
//! fail at once with the same words, and whoever waits is never held up.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

/// Calls that may be under way at once.
const PLACES: usize = 16;

#[derive(Debug, Clone)]
pub(crate) struct Pool {
    places: Arc<Semaphore>,
}

/// The call has not returned in time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Late;

impl Pool {
    pub(crate) fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(PLACES)) }
    }

    /// Runs a call on a thread of its own and waits for it, so long at most.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Late> {
        let end = Instant::now() + limit;
        let place = timeout_at(end, Arc::clone(&self.places).acquire_owned());
        let place = place.await.map_err(|_| Late)?.map_err(|_| Late)?;
        let (sender, receiver) = oneshot::channel();
        let thread = std::thread::Builder::new().name("libvirt".into()).spawn(move || {
            let result = call();
            drop(place);
            // Whoever asked may have gone.
            let _ = sender.send(result);
        });
        thread.map_err(|_| Late)?;
        timeout_at(end, receiver).await.map_err(|_| Late)?.map_err(|_| Late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_that_hangs_holds_up_nobody_but_itself() {
        let pool = Pool::new();
        let (release, hold) = std::sync::mpsc::channel::<()>();
        let hold = Arc::new(std::sync::Mutex::new(hold));
        let short = Duration::from_millis(20);
        for _ in 0..PLACES {
            let hold = Arc::clone(&hold);
            let hung = move || hold.lock().expect("not poisoned").recv().is_ok();
            assert_eq!(pool.run(short, hung).await, Err(Late));
        }
        assert_eq!(pool.run(short, || 1).await, Err(Late), "all places are taken");
        drop(release);
        assert_eq!(pool.run(Duration::from_secs(30), || 2).await, Ok(2), "and free again");
    }
}
