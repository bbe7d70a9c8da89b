//! Users' tokens by the object of their requests, for subsequent calls to other services: a host's
//! download of an image, the ports of a server. They are kept only in memory; after a restart the
//! service login replaces them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kilonova_wire::UserToken;

/// Maximum number of tokens.
const MOST: usize = 10_000;
/// How long a token is kept: longer than any operation takes. With a service token, Keystone accepts
/// a token for two days after its expiry.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);

/// The tokens by the id of an object.
pub(crate) struct Tokens<I>(Mutex<HashMap<I, (UserToken, Instant)>>);

impl<I> Default for Tokens<I> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<I: Copy + Eq + Hash + Ord> Tokens<I> {
    /// Keeps the token of the last user who named an object.
    pub(crate) fn keep(&self, id: I, token: Option<&UserToken>) {
        let Some(token) = token else { return };
        let mut token = token.clone();
        token.set_sensitive(true);
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() >= MOST {
            tokens.retain(|_, (_, since)| since.elapsed() < KEPT_FOR);
        }
        if tokens.len() >= MOST {
            let mut oldest: Vec<(Instant, I)> =
                tokens.iter().map(|(id, (_, since))| (*since, *id)).collect();
            oldest.sort_unstable();
            for (_, id) in oldest.into_iter().take(MOST / 8) {
                tokens.remove(&id);
            }
        }
        tokens.insert(id, (token, Instant::now()));
    }

    /// Forgets the token for an object, so that the service login is used.
    pub(crate) fn forget(&self, id: I) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// The token for an object.
    pub(crate) fn of(&self, id: I) -> Option<UserToken> {
        let tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (token, since) = tokens.get(&id)?;
        (since.elapsed() < KEPT_FOR).then(|| token.clone())
    }
}

#[cfg(test)]
mod tests {
    use kilonova_ids::ImageId;

    use super::*;

    #[test]
    fn tokens_are_bounded_and_not_shown() {
        let tokens = Tokens::default();
        let token = UserToken::from_static("secret");
        let first = ImageId::new_v4();
        tokens.keep(first, Some(&token));
        for _ in 0..MOST {
            tokens.keep(ImageId::new_v4(), Some(&token));
        }
        assert!(tokens.0.lock().expect("the lock is not poisoned").len() <= MOST);
        assert!(tokens.of(first).is_none(), "the oldest token is evicted");
        let last = ImageId::new_v4();
        tokens.keep(last, Some(&token));
        tokens.keep(last, None);
        let kept = tokens.of(last).expect("the token is kept");
        tokens.forget(last);
        assert!(tokens.of(last).is_none());
        assert!(!format!("{kept:?}").contains("secret"));
    }
}
