//! Locks by name. Steps on one target or mount never overlap: otherwise a login between another
//! volume's last check and its logout would lose its session.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

#[derive(Debug, Default)]
pub(crate) struct Locks {
    all: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Locks {
    /// Takes the locks with these names, in order of the names, so that no two callers wait for each
    /// other.
    pub(crate) async fn take(
        &self,
        names: impl IntoIterator<Item = String>,
    ) -> Vec<OwnedMutexGuard<()>> {
        let names: BTreeSet<String> = names.into_iter().collect();
        let mut taken = Vec::with_capacity(names.len());
        for name in names {
            let lock = {
                let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
                // A lock without another reference is free.
                all.retain(|known, lock| *known == name || Arc::strong_count(lock) > 1);
                Arc::clone(all.entry(name).or_default())
            };
            taken.push(lock.lock_owned().await);
        }
        taken
    }
}
