//! Locks by server. A guest whose QEMU hangs delays its own definitions only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use kilonova_ids::ServerId;
use tokio::sync::OwnedMutexGuard;

#[derive(Debug, Default)]
pub(super) struct Locks {
    all: Mutex<BTreeMap<ServerId, Arc<tokio::sync::Mutex<()>>>>,
}

impl Locks {
    /// Takes the lock of a server.
    pub(super) async fn take(&self, server: ServerId) -> OwnedMutexGuard<()> {
        let lock = {
            let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
            // A lock without another reference is free.
            all.retain(|known, lock| *known == server || Arc::strong_count(lock) > 1);
            Arc::clone(all.entry(server).or_default())
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn servers_do_not_wait_for_each_other() {
        let locks = Locks::default();
        let server = |id: &str| id.parse::<ServerId>().expect("an id");
        let one = server("11111111-1111-4111-8111-111111111111");
        let other = server("22222222-2222-4222-8222-222222222222");
        let held = locks.take(one).await;
        let soon = Duration::from_millis(50);
        assert!(timeout(soon, locks.take(one)).await.is_err(), "the lock is held");
        let second = timeout(soon, locks.take(other)).await.expect("another server's lock is free");
        drop((held, second));
        let again = timeout(soon, locks.take(one)).await.expect("the lock is free again");
        let known: Vec<ServerId> = locks.all.lock().expect("locked").keys().copied().collect();
        assert_eq!(known, [one], "unused locks are dropped");
        drop(again);
    }
}
