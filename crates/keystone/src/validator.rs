//! Authenticates requests of our services with tokens of an external Keystone. Each new token is
//! validated there once, however many requests present it concurrently.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use kilonova_wire::auth::Authentication;
use kilonova_wire::refusal::Kind;
use kilonova_wire::{Authenticator, Context, Fault, Refusal};
use tokio::sync::Semaphore;

use crate::cache::{Cache, Key, Validation, key};
use crate::{Credentials, Error, Http, Session, token};

const X_AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
const X_SERVICE_TOKEN: HeaderName = HeaderName::from_static("x-service-token");
const X_SUBJECT_TOKEN: HeaderName = HeaderName::from_static("x-subject-token");
/// Maximum length of a token in bytes; no Keystone issues longer ones.
const LONGEST: usize = 16 * 1024;
/// Concurrent validations.
const VALIDATIONS: usize = 32;
const LARGEST: usize = 4 * 1024 * 1024;

/// `[keystone_authtoken]`.
#[derive(Debug, Clone)]
pub struct ValidatorOptions {
    /// The login of the service user, which must be allowed to validate tokens.
    pub credentials: Credentials,
    /// The timeout of a request to Keystone (`http_connect_timeout`).
    pub timeout: Duration,
    /// Retries without an answer (`http_request_max_retries`).
    pub retries: u32,
    /// The login URL for callers; Keystone's URL if unset.
    pub www_authenticate_uri: Option<String>,
    /// Authorities to trust instead of the system's.
    pub cafile: Option<PathBuf>,
    /// How long a validation is cached.
    pub cache_time: Duration,
    /// A service token is accepted if its user has one of these roles.
    pub service_token_roles: Vec<String>,
    /// Refuse service tokens without these roles, instead of ignoring them.
    pub service_token_roles_required: bool,
}

/// The authenticator; cheap to clone.
#[derive(Clone)]
pub struct Validator(Arc<Inner>);

struct Inner {
    session: Session,
    options: ValidatorOptions,
    challenge: Option<HeaderValue>,
    cache: Cache,
    validations: Semaphore,
    flights: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>,
}

impl Validator {
    /// Creates the validator, without contacting Keystone.
    ///
    /// # Errors
    /// If `cafile` is unusable.
    pub fn new(options: ValidatorOptions) -> Result<Self, Error> {
        let http = Http::new(options.cafile.as_deref(), options.timeout, LARGEST)?;
        let uri = options.www_authenticate_uri.as_deref().unwrap_or(options.credentials.auth_url());
        Ok(Self(Arc::new(Inner {
            challenge: HeaderValue::try_from(format!("Keystone uri=\"{uri}\"")).ok(),
            session: Session::new(http, options.credentials.clone()).retrying(options.retries),
            cache: Cache::new(options.cache_time),
            options,
            validations: Semaphore::new(VALIDATIONS),
            flights: Mutex::default(),
        })))
    }

    /// Logs in as a test of the settings.
    ///
    /// # Errors
    /// The error of the login.
    pub async fn check(&self) -> Result<(), Error> {
        self.0.session.token().await.map(drop)
    }
}

impl Authenticator for Validator {
    fn authenticate<'a>(&'a self, headers: &'a HeaderMap) -> Authentication<'a> {
        Box::pin(async move { self.0.authenticate(headers).await.map_err(|why| self.0.fault(why)) })
    }
}

impl Inner {
    async fn authenticate(&self, headers: &HeaderMap) -> Result<Context, Refusal> {
        let user = bearer(headers, &X_AUTH_TOKEN)?;
        let own = headers.get(X_AUTH_TOKEN).cloned().map(|mut token| {
            token.set_sensitive(true);
            token
        });
        if !headers.contains_key(X_SERVICE_TOKEN) {
            let context = Context::clone(&*self.context(user, false).await?);
            return Ok(Context { token: own, ..context });
        }
        let service = self.context(bearer(headers, &X_SERVICE_TOKEN)?, false).await?;
        let accepted = self.options.service_token_roles.iter().any(|role| service.has_role(role));
        if !accepted && self.options.service_token_roles_required {
            return Err(unauthorized("the service token has none of the required roles"));
        }
        let mut context = Context::clone(&*self.context(user, accepted).await?);
        context.service = accepted;
        if accepted {
            context.service_roles.clone_from(&service.roles);
        }
        context.token = own;
        Ok(context)
    }

    /// The caller of a token. `allow_expired` is set if a valid service token accompanies the
    /// token: that service continues a long operation that the user began while the token was
    /// valid.
    async fn context(&self, text: &str, allow_expired: bool) -> Result<Arc<Context>, Refusal> {
        let key = key(text, allow_expired);
        if let Some(known) = self.cache.get(&key) {
            return admitted(known);
        }
        let flight = Flight::join(self, key);
        let _turn = flight.lock.lock().await;
        if let Some(known) = self.cache.get(&key) {
            return admitted(known);
        }
        let _permit = self.validations.acquire().await;
        let validated = self.validate(text, allow_expired).await.map_err(unavailable)?;
        let Some(body) = validated else {
            self.cache.refuse(key);
            return admitted(Validation::Refused);
        };
        let unexpected = || {
            let what = "a token without a user or an expiry".into();
            unavailable(Error::Unexpected { url: self.options.credentials.root(), what })
        };
        let context = Arc::new(token::context(&body).ok_or_else(unexpected)?);
        let left = token::time_left(&body).ok_or_else(unexpected)?;
        let left = if allow_expired { self.options.cache_time } else { left };
        self.cache.put(key, Arc::clone(&context), left);
        Ok(context)
    }

    /// Keystone's description of a token; `None` if Keystone refuses it.
    async fn validate(
        &self,
        text: &str,
        allow_expired: bool,
    ) -> Result<Option<serde_json::Value>, Error> {
        let expired = if allow_expired { "&allow_expired=1" } else { "" };
        let url = format!("{}/auth/tokens?nocatalog=1{expired}", self.options.credentials.root());
        let Ok(mut subject) = HeaderValue::try_from(text) else { return Ok(None) };
        subject.set_sensitive(true);
        let mut held = self.session.token().await?;
        let mut renewed = false;
        loop {
            let headers = [(X_AUTH_TOKEN, held.text.clone()), (X_SUBJECT_TOKEN, subject.clone())];
            let http = self.session.http();
            let retries = self.session.retries();
            let answer = http.send_with_retries(retries, Method::GET, &url, &headers, None).await?;
            match answer.status {
                StatusCode::OK => return Ok(Some(answer.json())),
                StatusCode::NOT_FOUND => return Ok(None),
                StatusCode::UNAUTHORIZED if !renewed => {
                    held = self.session.renewed(&held).await?;
                    renewed = true;
                }
                status => {
                    let user = self.options.credentials.who();
                    let what = match status {
                        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => format!(
                            "{status}: grant {user} a role that may validate tokens (service)"
                        ),
                        other => other.to_string(),
                    };
                    return Err(Error::Unexpected { url, what });
                }
            }
        }
    }

    /// A 401 with the login URL, or any other refusal unchanged.
    fn fault(&self, refusal: Refusal) -> Fault {
        let is_challenged = refusal.kind == Kind::Unauthorized;
        let fault = Fault::from(refusal);
        match &self.challenge {
            Some(challenge) if is_challenged => {
                fault.with_header(header::WWW_AUTHENTICATE, challenge.clone())
            }
            _ => fault,
        }
    }
}

fn admitted(known: Validation) -> Result<Arc<Context>, Refusal> {
    match known {
        Validation::Valid(context) => Ok(context),
        Validation::Refused => Err(unauthorized("Keystone refused the token")),
    }
}

fn unauthorized(why: &'static str) -> Refusal {
    Refusal::unauthorized("The request you have made requires authentication.").with_internal(why)
}

fn unavailable(error: Error) -> Refusal {
    Refusal::new(
        Kind::Unavailable,
        "The Keystone service is temporarily unavailable: your token cannot be checked now. Try \
         again.",
    )
    .with_retry_after(1)
    .with_internal(error)
}

/// Callers that wait for the validation of the same token; the last one cleans up.
struct Flight<'a> {
    inner: &'a Inner,
    key: Key,
    lock: Arc<tokio::sync::Mutex<()>>,
}

impl<'a> Flight<'a> {
    fn join(inner: &'a Inner, key: Key) -> Self {
        let mut flights = inner.flights.lock().unwrap_or_else(PoisonError::into_inner);
        let lock = Arc::clone(flights.entry(key).or_default());
        Self { inner, key, lock }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut flights = self.inner.flights.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::strong_count(&self.lock) <= 2 {
            flights.remove(&self.key);
        }
    }
}

fn bearer<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a str, Refusal> {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .filter(|text| !text.is_empty() && text.len() <= LONGEST)
        .ok_or_else(|| unauthorized("the request has no token"))
}
