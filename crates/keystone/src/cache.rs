//! A cache of token validations. Keys are hashes, so that a memory dump reveals no tokens. Refusals
//! are kept separately and more briefly: a flood of invalid tokens must not evict valid ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kilonova_wire::Context;
use sha2::{Digest as _, Sha256};

/// Maximum number of entries of each kind.
const MOST: usize = 10_000;
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// The hash of a token and of the flag that accepts expired tokens.
pub(crate) type Key = [u8; 32];

/// The key of a token. A validation that accepts expired tokens has another key.
pub(crate) fn key(token: &str, allow_expired: bool) -> Key {
    let mut hash = Sha256::new();
    hash.update([u8::from(allow_expired)]);
    hash.update(token.as_bytes());
    hash.finalize().into()
}

/// A cached validation.
#[derive(Clone)]
pub(crate) enum Validation {
    /// Keystone confirmed the token.
    Valid(Arc<Context>),
    /// Keystone refused it.
    Refused,
}

pub(crate) struct Cache {
    time: Duration,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    good: HashMap<Key, (Arc<Context>, Instant)>,
    refused: HashMap<Key, Instant>,
}

impl Cache {
    pub(crate) fn new(time: Duration) -> Self {
        Self { time, inner: Mutex::default() }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Validation> {
        let inner = self.lock();
        let now = Instant::now();
        if let Some((context, until)) = inner.good.get(key)
            && *until > now
        {
            return Some(Validation::Valid(Arc::clone(context)));
        }
        inner.refused.get(key).filter(|until| **until > now).map(|_| Validation::Refused)
    }

    /// Caches a valid token for the cache time, but no longer than its remaining `lifetime`.
    pub(crate) fn put(&self, key: Key, context: Arc<Context>, lifetime: Duration) {
        let now = Instant::now();
        let mut inner = self.lock();
        trim(&mut inner.good, |(_, until)| *until > now);
        inner.refused.remove(&key);
        inner.good.insert(key, (context, now + self.time.min(lifetime)));
    }

    pub(crate) fn refuse(&self, key: Key) {
        let now = Instant::now();
        let mut inner = self.lock();
        trim(&mut inner.refused, |until| *until > now);
        inner.good.remove(&key);
        inner.refused.insert(key, now + REFUSED_FOR.min(self.time));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes room for one entry: evicts expired entries, then arbitrary ones.
fn trim<T>(entries: &mut HashMap<Key, T>, alive: impl Fn(&T) -> bool) {
    if entries.len() < MOST {
        return;
    }
    entries.retain(|_, entry| alive(entry));
    if entries.len() < MOST {
        return;
    }
    let victims: Vec<Key> = entries.keys().take(MOST / 8).copied().collect();
    for victim in victims {
        entries.remove(&victim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_bounded_and_do_not_evict_each_other() {
        let cache = Cache::new(Duration::from_secs(60));
        let real = key("real", false);
        cache.put(real, Arc::default(), Duration::from_secs(60));
        for n in 0..MOST * 2 {
            cache.refuse(key(&n.to_string(), false));
        }
        assert!(matches!(cache.get(&real), Some(Validation::Valid(_))));
        assert!(cache.lock().refused.len() <= MOST);
        for n in 0..MOST * 2 {
            cache.put(key(&n.to_string(), false), Arc::default(), Duration::from_secs(60));
        }
        assert!(cache.lock().good.len() <= MOST);
    }

    #[test]
    fn no_entry_outlives_its_token() {
        let cache = Cache::new(Duration::from_secs(60));
        let short = key("short", false);
        cache.put(short, Arc::default(), Duration::ZERO);
        assert!(cache.get(&short).is_none());
        assert_ne!(short, key("short", true));
    }

    #[test]
    fn a_cache_time_of_zero_disables_the_cache() {
        let cache = Cache::new(Duration::ZERO);
        cache.put(key("a", false), Arc::default(), Duration::from_secs(60));
        cache.refuse(key("b", false));
        assert!(cache.get(&key("a", false)).is_none() && cache.get(&key("b", false)).is_none());
    }
}
