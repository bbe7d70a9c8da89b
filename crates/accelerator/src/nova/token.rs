//! The token for Nova: none, a fixed one, or one from a Keystone, renewed before it expires and
//! when Nova refuses it.

use std::sync::Arc;

use http::HeaderValue;
use kilonova_keystone::{Http, Login, Session, SessionToken};
use tokio::sync::Mutex;

use super::NovaError;
use super::http::later;

/// The credentials for Nova.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// No authentication.
    None,
    /// A token that the operator configured.
    Token(String),
    /// A user of a Keystone.
    Password(Login),
}

pub(super) enum Tokens {
    None,
    Fixed(HeaderValue),
    Login { session: Box<Session>, last: Mutex<Option<Arc<SessionToken>>> },
}

impl Tokens {
    /// # Errors
    /// Returns an error for a token that is not a valid header value.
    pub fn new(credentials: Credentials, http: &Http) -> Result<Self, String> {
        Ok(match credentials {
            Credentials::None => Self::None,
            Credentials::Token(token) => {
                let mut value = HeaderValue::from_str(&token)
                    .map_err(|_| "the token for Nova is not a valid header value".to_owned())?;
                value.set_sensitive(true);
                Self::Fixed(value)
            }
            Credentials::Password(login) => Self::Login {
                session: Box::new(Session::new(http.clone(), login)),
                last: Mutex::default(),
            },
        })
    }

    /// The token as a header value, and the session token that it belongs to, if a login is
    /// configured. With `refused`, Nova has refused the last token, and a login gets a new one.
    pub async fn get(
        &self,
        refused: bool,
    ) -> Result<(Option<HeaderValue>, Option<Arc<SessionToken>>), NovaError> {
        match self {
            Self::None => Ok((None, None)),
            Self::Fixed(value) => Ok((Some(value.clone()), None)),
            Self::Login { session, last } => {
                let mut last = last.lock().await;
                let held = match last.as_ref().filter(|_| refused) {
                    Some(old) => session.renewed(old).await,
                    None => session.token().await,
                };
                let held = held.map_err(later)?;
                let text = held.text.clone();
                *last = Some(Arc::clone(&held));
                Ok((Some(text), Some(held)))
            }
        }
    }
}
