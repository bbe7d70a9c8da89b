//! What Keystone said of tokens, for a while. The keys are hashes, so that a memory dump shows no
//! tokens. Refusals are kept apart and for shorter: a flood of made-up tokens must not push out
//! what is known of real ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kilonova_wire::Context;
use sha2::{Digest as _, Sha256};

/// Entries of each kind at most.
const MOST: usize = 10_000;
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// The hash of a token, and whether it may have ended.
pub(crate) type Key = [u8; 32];

/// The key of a token. One that was asked about with leave to have ended is another entry.
pub(crate) fn key(token: &str, may_have_ended: bool) -> Key {
    let mut hash = Sha256::new();
    hash.update([u8::from(may_have_ended)]);
    hash.update(token.as_bytes());
    hash.finalize().into()
}

/// What is known of a token.
#[derive(Clone)]
pub(crate) enum Known {
    /// Keystone answers for it.
    Good(Arc<Context>),
    /// It does not.
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

    pub(crate) fn get(&self, key: &Key) -> Option<Known> {
        let inner = self.lock();
        let now = Instant::now();
        if let Some((context, until)) = inner.good.get(key)
            && *until > now
        {
            return Some(Known::Good(Arc::clone(context)));
        }
        inner.refused.get(key).filter(|until| **until > now).map(|_| Known::Refused)
    }

    /// Remembers a token for the cache's time, but no longer than it is `good_for`.
    pub(crate) fn put(&self, key: Key, context: Arc<Context>, good_for: Duration) {
        let now = Instant::now();
        let mut inner = self.lock();
        trim(&mut inner.good, |(_, until)| *until > now);
        inner.refused.remove(&key);
        inner.good.insert(key, (context, now + self.time.min(good_for)));
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

/// Makes room for one more: what is over goes first, then some of the rest.
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
    fn both_kinds_are_bounded_and_do_not_push_each_other_out() {
        let cache = Cache::new(Duration::from_secs(60));
        let real = key("real", false);
        cache.put(real, Arc::default(), Duration::from_secs(60));
        for n in 0..MOST * 2 {
            cache.refuse(key(&n.to_string(), false));
        }
        assert!(matches!(cache.get(&real), Some(Known::Good(_))));
        assert!(cache.lock().refused.len() <= MOST);
        for n in 0..MOST * 2 {
            cache.put(key(&n.to_string(), false), Arc::default(), Duration::from_secs(60));
        }
        assert!(cache.lock().good.len() <= MOST);
    }

    #[test]
    fn nothing_is_remembered_longer_than_the_token_lasts() {
        let cache = Cache::new(Duration::from_secs(60));
        let short = key("short", false);
        cache.put(short, Arc::default(), Duration::ZERO);
        assert!(cache.get(&short).is_none());
        assert_ne!(short, key("short", true));
    }

    #[test]
    fn a_cache_time_of_zero_remembers_nothing() {
        let cache = Cache::new(Duration::ZERO);
        cache.put(key("a", false), Arc::default(), Duration::from_secs(60));
        cache.refuse(key("b", false));
        assert!(cache.get(&key("a", false)).is_none() && cache.get(&key("b", false)).is_none());
    }
}
