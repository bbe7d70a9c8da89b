//! What this process remembers of secrets that were checked; see the [module](super).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest as _, Sha256};

/// Entries of each kind at most.
const MOST: usize = 4096;

/// A secret and the hash that it was checked against, as this process alone can compute it.
pub(super) type Print = [u8; 32];

pub(super) struct Memory {
    key: [u8; 32],
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    wrong: HashSet<Print>,
    /// In the order in which they came.
    order: VecDeque<Print>,
    /// The first byte of the print of a user's last secret that was right.
    right: HashMap<String, u8>,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self { key: rand::random(), inner: Mutex::default() }
    }

    pub(super) fn print(&self, stored: &str, secret: &str) -> Print {
        let mut print = Sha256::new();
        print.update(self.key);
        print.update((stored.len() as u64).to_be_bytes());
        print.update(stored);
        print.update(secret);
        print.finalize().into()
    }

    pub(super) fn was_wrong(&self, print: &Print) -> bool {
        self.lock().wrong.contains(print)
    }

    pub(super) fn wrong(&self, print: Print) {
        let mut inner = self.lock();
        if inner.wrong.insert(print) {
            inner.order.push_back(print);
        }
        if inner.order.len() > MOST
            && let Some(oldest) = inner.order.pop_front()
        {
            inner.wrong.remove(&oldest);
        }
    }

    pub(super) fn looks_right(&self, user: &str, print: &Print) -> bool {
        self.lock().right.get(user) == Some(&print[0])
    }

    pub(super) fn right(&self, user: String, print: &Print) {
        let mut inner = self.lock();
        if inner.right.len() >= MOST && !inner.right.contains_key(&user) {
            let victims: Vec<String> = inner.right.keys().take(MOST / 8).cloned().collect();
            for victim in victims {
                inner.right.remove(&victim);
            }
        }
        inner.right.insert(user, print[0]);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_and_a_new_password_is_another_matter() {
        let memory = Memory::new();
        let print = memory.print("hash", "secret");
        memory.wrong(print);
        assert!(memory.was_wrong(&print));
        assert!(!memory.was_wrong(&memory.print("another hash", "secret")));
        for n in 0..2 * MOST {
            memory.wrong(memory.print("hash", &n.to_string()));
            memory.right(n.to_string(), &print);
        }
        assert!(!memory.was_wrong(&print));
        let inner = memory.lock();
        assert!(inner.wrong.len() <= MOST && inner.right.len() <= MOST);
    }
}
