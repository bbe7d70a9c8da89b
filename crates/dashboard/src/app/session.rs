//! Sessions. A session is the token of a user in a sealed cookie.
//!
//! The browser cannot read or change the cookie, and no controller stores the session. It ends when
//! the token expires or the user logs out. Logging out revokes the token, so that a copy of the
//! cookie is worthless too.

use std::fmt;

use kilonova_seal::SealKey;
use rand::RngExt;
use serde::{Deserialize, Serialize};

/// Maximum length of a cookie; browsers drop cookies above 4,096 bytes.
const MAX_COOKIE: usize = 3900;
/// The place for which sessions are sealed ([`SealKey`]). A new form of sessions needs a new place.
const SESSION: &str = "dashboard session 1";
/// The place of the secret that binds a login form to its browser.
const LOGIN_SECRET: &str = "dashboard login 1";

/// The session of a user.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Session {
    /// The token, scoped to a project.
    pub token: String,
    /// The secret that each form of the session repeats.
    pub csrf: String,
    /// When the token expires, in seconds since 1970.
    pub expires: i64,
    /// The user's name.
    pub user: String,
    /// The project's id.
    pub project: String,
    /// The project's name.
    pub project_name: String,
    /// True if the user may switch to another project: an application credential has only one.
    pub switches: bool,
    /// True if the user may see the hosts. The policy decides at each request; the cookie does not
    /// contain the answer.
    #[serde(skip)]
    pub operates: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("user", &self.user)
            .field("project", &self.project)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// The value of the cookie; `None` if it is too large for a browser, or cannot be sealed.
    pub fn sealed(&self, key: &SealKey) -> Option<String> {
        let plain = serde_json::to_vec(self).ok()?;
        let sealed = key.seal(SESSION, &plain).ok()?;
        (sealed.len() <= MAX_COOKIE).then_some(sealed)
    }

    /// The session in a cookie; `None` if this cloud did not seal the cookie, or if the session has
    /// ended.
    pub fn open(key: &SealKey, cookie: &str, now: i64) -> Option<Self> {
        if cookie.len() > MAX_COOKIE {
            return None;
        }
        let plain = key.unseal(SESSION, cookie).ok()?;
        let session: Self = serde_json::from_slice(&plain).ok()?;
        (session.expires > now).then_some(session)
    }
}

/// A new secret for a browser without a session, and the sealed secret for its cookie.
pub(crate) fn login_secret(key: &SealKey) -> Option<(String, String)> {
    let secret = random();
    let cookie = key.seal(LOGIN_SECRET, secret.as_bytes()).ok()?;
    Some((secret, cookie))
}

/// True if a login form has the secret of the browser's cookie.
pub(crate) fn is_login_secret(key: &SealKey, cookie: &str, secret: &str) -> bool {
    cookie.len() <= MAX_COOKIE
        && key.unseal(LOGIN_SECRET, cookie).is_ok_and(|plain| equal(&plain, secret.as_bytes()))
}

/// 128 random bits.
pub(crate) fn random() -> String {
    let bytes: [u8; 16] = rand::rng().random();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares in a time that depends only on the lengths.
pub(crate) fn equal(a: &[u8], b: &[u8]) -> bool {
    let differ = a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b));
    a.len() == b.len() && differ == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session {
            token: "gAAAAABtoken".into(),
            csrf: random(),
            expires: 1000,
            user: "ann".into(),
            project: "p1".into(),
            project_name: "red".into(),
            switches: true,
            operates: false,
        }
    }

    #[test]
    fn a_cookie_opens_with_its_key_until_the_token_ends() {
        let (key, other) = (SealKey::generate().unwrap(), SealKey::generate().unwrap());
        let cookie = session().sealed(&key).unwrap();
        assert!(!cookie.contains("gAAAAAB"), "the token is not readable");
        assert_eq!(Session::open(&key, &cookie, 999).unwrap().token, "gAAAAABtoken");
        assert!(Session::open(&key, &cookie, 1000).is_none(), "the token has ended");
        assert!(Session::open(&other, &cookie, 0).is_none(), "another cloud's key");
        let mut forged = cookie.clone().into_bytes();
        let last = forged.len() - 3;
        forged[last] = if forged[last] == b'A' { b'B' } else { b'A' };
        assert!(Session::open(&key, &String::from_utf8(forged).unwrap(), 0).is_none());
        assert!(
            Session::open(&key, "", 0).is_none() && Session::open(&key, "kns1:x:y", 0).is_none()
        );
    }

    #[test]
    fn a_session_that_no_browser_keeps_is_refused() {
        let key = SealKey::generate().unwrap();
        let large = Session { token: "x".repeat(4000), ..session() };
        assert!(large.sealed(&key).is_none());
    }

    #[test]
    fn a_login_form_belongs_to_one_browser() {
        let key = SealKey::generate().unwrap();
        let (secret, cookie) = login_secret(&key).unwrap();
        let (another, _) = login_secret(&key).unwrap();
        assert!(is_login_secret(&key, &cookie, &secret));
        assert!(!is_login_secret(&key, &cookie, &another) && !is_login_secret(&key, &cookie, ""));
        let cookie = session().sealed(&key).unwrap();
        assert!(!is_login_secret(&key, &cookie, &secret), "a session is not a login secret");
    }

    #[test]
    fn the_log_does_not_have_the_token() {
        assert!(!format!("{:?}", session()).contains("gAAAAAB"));
    }
}
