//! Authenticates requests of every service: turns a token into a [`Context`].

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use jiff::SignedDuration;
use kilonova_wire::auth::Authentication;
use kilonova_wire::{Authenticator, Context, Fault, time};

use crate::app::session::{Expiry, Session};
use crate::cache::Cache;
use crate::token::Token;
use crate::{Error, Identity};

/// The header with the caller's token.
pub(crate) const X_AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
const X_SERVICE_TOKEN: HeaderName = HeaderName::from_static("x-service-token");

impl Authenticator for Identity {
    fn authenticate<'a>(&'a self, headers: &'a HeaderMap) -> Authentication<'a> {
        Box::pin(async move { self.admit(headers).await.map_err(|error| self.refuse(error)) })
    }
}

impl Identity {
    /// The caller of a request. A service that also presents its own token vouches for the user's
    /// token, which may have expired since the user began the operation.
    async fn admit(&self, headers: &HeaderMap) -> Result<Context, Error> {
        let user = bearer(headers, &X_AUTH_TOKEN)?;
        if !headers.contains_key(X_SERVICE_TOKEN) {
            return self.context(user, Expiry::Refused).await;
        }
        let service = self.context(bearer(headers, &X_SERVICE_TOKEN)?, Expiry::Refused).await?;
        let rules = &self.inner.service_tokens;
        let accepted = rules.roles.iter().any(|role| service.has_role(role));
        if !accepted && rules.roles_required {
            return Err(Error::Unauthorized("the service token has none of the required roles"));
        }
        let expiry = if accepted { Expiry::Allowed } else { Expiry::Refused };
        let mut context = self.context(user, expiry).await?;
        context.service = accepted;
        if accepted {
            context.service_roles = service.roles;
        }
        Ok(context)
    }

    async fn context(&self, text: &str, expiry: Expiry) -> Result<Context, Error> {
        let (key, now) = (Cache::key(text), time::now());
        let era = match self.inner.cache.get(&key, now) {
            Ok(context) => return Ok(context),
            Err(era) => era,
        };
        let session = self.session(text, expiry).await?;
        let mut context = session.context();
        context.expired = session.token.expires <= now;
        // An expired token is not cached: a request without a service token must not find it.
        if !context.expired {
            self.inner.cache.put(era, key, context.clone(), session.token.expires);
        }
        Ok(context)
    }

    /// Resolves a token to its session.
    pub(crate) async fn session(&self, text: &str, expiry: Expiry) -> Result<Session, Error> {
        let token = self.token(text).await?;
        let token = token.ok_or(Error::Unauthorized("the token was not issued here"))?;
        let window = match expiry {
            Expiry::Refused => SignedDuration::ZERO,
            Expiry::Allowed => self.inner.allow_expired_window,
        };
        self.read(move |tx| Session::resolve_expired(tx, &token, time::now(), window)).await
    }

    /// The contents of a token. A key that this controller does not know yet may have signed it.
    async fn token(&self, text: &str) -> Result<Option<Token>, Error> {
        let keys = self.inner.keys.current();
        if let Some(token) = Token::unseal(&keys, text) {
            return Ok(Some(token));
        }
        if !Token::is_plausible(text) || !self.inner.keys.reload_for_unknown(&keys).await? {
            return Ok(None);
        }
        Ok(Token::unseal(&self.inner.keys.current(), text))
    }

    /// The session of the caller.
    pub(crate) async fn caller(&self, headers: &HeaderMap) -> Result<Session, Error> {
        self.session(bearer(headers, &X_AUTH_TOKEN)?, Expiry::Refused).await
    }

    /// The fault for an error. A 401 names the login path, which the mount completes to a URL.
    pub(crate) fn refuse(&self, error: impl Into<Fault>) -> Fault {
        let fault = error.into();
        if fault.status() != StatusCode::UNAUTHORIZED {
            return fault;
        }
        let catalog = self.catalog();
        let path = catalog
            .iter()
            .find(|entry| entry.service_type == "identity")
            .map_or("/identity/v3", |entry| &entry.path);
        match HeaderValue::try_from(format!("Keystone uri=\"{path}\"")) {
            Ok(value) => fault.with_header(header::WWW_AUTHENTICATE, value),
            Err(_) => fault,
        }
    }
}

/// The token in a header.
pub(crate) fn bearer<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a str, Error> {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .filter(|text| !text.is_empty())
        .ok_or(Error::Unauthorized("the request has no token"))
}
