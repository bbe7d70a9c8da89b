//! Users' tokens by image, for the calls that follow a user's request: a host's download, a snapshot's
//! upload. They are only in memory; after a restart the service login takes their place.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kilonova_ids::ImageId;
use kilonova_wire::UserToken;

/// The most tokens.
const MOST: usize = 10_000;
/// A service token makes Keystone accept a token for two days after its end; no operation takes longer.
const KEPT_FOR: Duration = Duration::from_secs(24 * 3600);

/// The tokens.
#[derive(Default)]
pub(super) struct Tokens(Mutex<HashMap<ImageId, (UserToken, Instant)>>);

impl Tokens {
    /// Keeps the token of the last user who named an image.
    pub fn keep(&self, image: ImageId, token: Option<&UserToken>) {
        let Some(token) = token else { return };
        let mut token = token.clone();
        token.set_sensitive(true);
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() >= MOST {
            tokens.retain(|_, (_, since)| since.elapsed() < KEPT_FOR);
        }
        if tokens.len() >= MOST {
            let mut oldest: Vec<(Instant, ImageId)> =
                tokens.iter().map(|(image, (_, since))| (*since, *image)).collect();
            oldest.sort_unstable();
            for (_, image) in oldest.into_iter().take(MOST / 8) {
                tokens.remove(&image);
            }
        }
        tokens.insert(image, (token, Instant::now()));
    }

    /// The token for an image.
    pub fn of(&self, image: ImageId) -> Option<UserToken> {
        let tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (token, since) = tokens.get(&image)?;
        (since.elapsed() < KEPT_FOR).then(|| token.clone())
    }
}

#[cfg(test)]
mod tests {
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
        assert!(tokens.of(first).is_none(), "the oldest one makes room");
        let last = ImageId::new_v4();
        tokens.keep(last, Some(&token));
        tokens.keep(last, None);
        let kept = tokens.of(last).expect("the token is kept");
        assert!(!format!("{kept:?}").contains("secret"));
    }
}
