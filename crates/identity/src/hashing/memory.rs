//! Fingerprints of secrets that this process checked; see the [module](super).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest as _, Sha256};

/// Maximum number of entries of each kind.
const MOST: usize = 4096;

/// A keyed hash over a secret and the stored hash; the key never leaves this process.
pub(super) type Fingerprint = [u8; 32];

pub(super) struct Memory {
    key: [u8; 32],
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    wrong: HashSet<Fingerprint>,
    /// The fingerprints in `wrong` in order of arrival, for eviction.
    order: VecDeque<Fingerprint>,
    /// The first byte of the fingerprint of each user's last correct secret.
    right: HashMap<String, u8>,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self { key: rand::random(), inner: Mutex::default() }
    }

    pub(super) fn fingerprint(&self, stored: &str, secret: &str) -> Fingerprint {
        let mut fingerprint = Sha256::new();
        fingerprint.update(self.key);
        fingerprint.update((stored.len() as u64).to_be_bytes());
        fingerprint.update(stored);
        fingerprint.update(secret);
        fingerprint.finalize().into()
    }

    pub(super) fn was_wrong(&self, fingerprint: &Fingerprint) -> bool {
        self.lock().wrong.contains(fingerprint)
    }

    pub(super) fn wrong(&self, fingerprint: Fingerprint) {
        let mut inner = self.lock();
        if inner.wrong.insert(fingerprint) {
            inner.order.push_back(fingerprint);
        }
        if inner.order.len() > MOST
            && let Some(oldest) = inner.order.pop_front()
        {
            inner.wrong.remove(&oldest);
        }
    }

    pub(super) fn is_likely_right(&self, user: &str, fingerprint: &Fingerprint) -> bool {
        self.lock().right.get(user) == Some(&fingerprint[0])
    }

    pub(super) fn right(&self, user: String, fingerprint: &Fingerprint) {
        let mut inner = self.lock();
        if inner.right.len() >= MOST && !inner.right.contains_key(&user) {
            let victims: Vec<String> = inner.right.keys().take(MOST / 8).cloned().collect();
            for victim in victims {
                inner.right.remove(&victim);
            }
        }
        inner.right.insert(user, fingerprint[0]);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_bounded_and_distinguishes_stored_hashes() {
        let memory = Memory::new();
        let fingerprint = memory.fingerprint("hash", "secret");
        memory.wrong(fingerprint);
        assert!(memory.was_wrong(&fingerprint));
        assert!(!memory.was_wrong(&memory.fingerprint("another hash", "secret")));
        for n in 0..2 * MOST {
            memory.wrong(memory.fingerprint("hash", &n.to_string()));
            memory.right(n.to_string(), &fingerprint);
        }
        assert!(!memory.was_wrong(&fingerprint));
        let inner = memory.lock();
        assert!(inner.wrong.len() <= MOST && inner.right.len() <= MOST);
    }
}
