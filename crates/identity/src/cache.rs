//! A short-lived cache of validated tokens, which saves the database read of most requests.
//!
//! Keys are hashes of tokens, so that a memory dump reveals no tokens. Entries expire after
//! [`Cache::ttl`]. A change by this process empties the cache immediately; a change by another
//! controller empties it when the change log reports the change. The era prevents a validation that
//! began before a change from storing its stale result after the change.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kilonova_wire::Context;
use sha2::{Digest as _, Sha256};

const MOST: usize = 4096;

/// The hash of a token.
pub(crate) type Key = [u8; 32];

/// The bounded cache.
pub(crate) struct Cache {
    ttl: Duration,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    era: u64,
    entries: HashMap<Key, Entry>,
}

struct Entry {
    context: Context,
    until: Instant,
    expires: Timestamp,
}

impl Cache {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self { ttl: ttl.min(Duration::from_secs(30)), inner: Mutex::default() }
    }

    pub(crate) fn key(token: &str) -> Key {
        Sha256::digest(token.as_bytes()).into()
    }

    /// The cached context, or the current era for a later [`Cache::put`].
    pub(crate) fn get(&self, key: &Key, now: Timestamp) -> Result<Context, u64> {
        let inner = self.lock();
        match inner.entries.get(key) {
            Some(entry) if entry.until > Instant::now() && entry.expires > now => {
                Ok(entry.context.clone())
            }
            _ => Err(inner.era),
        }
    }

    pub(crate) fn put(&self, era: u64, key: Key, context: Context, expires: Timestamp) {
        let mut inner = self.lock();
        if inner.era != era {
            return;
        }
        let now = Instant::now();
        if inner.entries.len() >= MOST {
            inner.entries.retain(|_, entry| entry.until > now);
        }
        if inner.entries.len() >= MOST {
            let victims: Vec<Key> = inner.entries.keys().take(MOST / 8).copied().collect();
            for victim in victims {
                inner.entries.remove(&victim);
            }
        }
        inner.entries.insert(key, Entry { context, until: now + self.ttl, expires });
    }

    /// Empties the cache and begins a new era.
    pub(crate) fn clear(&self) {
        let mut inner = self.lock();
        inner.era += 1;
        inner.entries.clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_change_discards_a_concurrent_validation() {
        let cache = Cache::new(Duration::from_secs(5));
        let key = Cache::key("t");
        let era = cache.get(&key, at(0)).unwrap_err();
        cache.clear();
        cache.put(era, key, Context::default(), Timestamp::MAX);
        assert!(cache.get(&key, at(0)).is_err());
        let era = cache.get(&key, at(0)).unwrap_err();
        cache.put(era, key, Context::default(), at(10));
        assert!(cache.get(&key, at(9)).is_ok());
        assert!(cache.get(&key, at(10)).is_err());
    }

    #[test]
    fn the_cache_is_bounded() {
        let cache = Cache::new(Duration::from_secs(5));
        for i in 0..MOST * 2 {
            cache.put(0, Cache::key(&i.to_string()), Context::default(), Timestamp::MAX);
        }
        assert!(cache.lock().entries.len() <= MOST);
    }
}
