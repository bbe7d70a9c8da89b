//! The door of our services when tokens are another Keystone's: each new token is asked about over
//! there, once, however many requests bring it at the same time.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use kilonova_wire::auth::Authentication;
use kilonova_wire::{Authenticator, Context, Fault};
use tokio::sync::Semaphore;

use crate::cache::{Cache, Key, Known, key};
use crate::{DomainIds, Error, Http, Login, Session, token};

const X_AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
const X_SERVICE_TOKEN: HeaderName = HeaderName::from_static("x-service-token");
const X_SUBJECT_TOKEN: HeaderName = HeaderName::from_static("x-subject-token");
/// No Keystone gives out longer ones.
const LONGEST: usize = 16 * 1024;
/// Questions at once.
const ASKING: usize = 32;
const LARGEST: usize = 4 * 1024 * 1024;

/// `[keystone_authtoken]`.
#[derive(Debug, Clone)]
pub struct Options {
    /// Our own user over there; it has to be allowed to validate tokens.
    pub login: Login,
    /// Its domains, where they are named by id.
    pub domains: DomainIds,
    /// How long Keystone may take to answer (`http_connect_timeout`).
    pub timeout: Duration,
    /// How often it is asked again when it does not (`http_request_max_retries`).
    pub retries: u32,
    /// Where callers are sent for a token; Keystone's address unless told otherwise.
    pub www_authenticate_uri: Option<String>,
    /// Authorities to trust instead of the system's.
    pub cafile: Option<PathBuf>,
    /// How long an answer is remembered.
    pub cache_time: Duration,
    /// A service token counts when its user has one of these roles.
    pub service_token_roles: Vec<String>,
    /// Refuse service tokens that do not count, instead of ignoring them.
    pub service_token_roles_required: bool,
}

/// The door; cheap to clone.
#[derive(Clone)]
pub struct Validator(Arc<Inner>);

struct Inner {
    session: Session,
    options: Options,
    challenge: Option<HeaderValue>,
    cache: Cache,
    asking: Semaphore,
    flights: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>,
}

enum Refusal {
    Unauthorized(&'static str),
    Away(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Away(error)
    }
}

impl Validator {
    /// Sets it up; nobody is asked yet.
    ///
    /// # Errors
    /// When `cafile` cannot be used.
    pub fn new(options: Options) -> Result<Self, Error> {
        let http = Http::new(options.cafile.as_deref(), options.timeout, LARGEST)?;
        let uri = options.www_authenticate_uri.as_deref().unwrap_or(&options.login.auth_url);
        Ok(Self(Arc::new(Inner {
            challenge: HeaderValue::try_from(format!("Keystone uri=\"{uri}\"")).ok(),
            session: Session::new(http, options.login.clone())
                .in_domains(options.domains.clone())
                .retrying(options.retries),
            cache: Cache::new(options.cache_time),
            options,
            asking: Semaphore::new(ASKING),
            flights: Mutex::default(),
        })))
    }

    /// Logs in, to find out whether that works.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn check(&self) -> Result<(), Error> {
        self.0.session.token().await.map(drop)
    }
}

impl Authenticator for Validator {
    fn authenticate<'a>(&'a self, headers: &'a HeaderMap) -> Authentication<'a> {
        Box::pin(async move { self.0.admit(headers).await.map_err(|why| self.0.fault(why)) })
    }
}

impl Inner {
    async fn admit(&self, headers: &HeaderMap) -> Result<Context, Refusal> {
        let user = bearer(headers, &X_AUTH_TOKEN)?;
        if !headers.contains_key(X_SERVICE_TOKEN) {
            return Ok(Context::clone(&*self.context(user, false).await?));
        }
        let service = self.context(bearer(headers, &X_SERVICE_TOKEN)?, false).await?;
        let counts = self.options.service_token_roles.iter().any(|role| service.has_role(role));
        if !counts && self.options.service_token_roles_required {
            return Err(Refusal::Unauthorized("the service token has none of the roles"));
        }
        let mut context = Context::clone(&*self.context(user, counts).await?);
        if counts {
            context.service_roles.clone_from(&service.roles);
        }
        Ok(context)
    }

    /// Whose token it is. One that a service vouches for may have ended: the service is at a long
    /// piece of work that the user began in time.
    async fn context(&self, text: &str, may_have_ended: bool) -> Result<Arc<Context>, Refusal> {
        let key = key(text, may_have_ended);
        if let Some(known) = self.cache.get(&key) {
            return known.into();
        }
        let flight = Flight::join(self, key);
        let _turn = flight.lock.lock().await;
        if let Some(known) = self.cache.get(&key) {
            return known.into();
        }
        let _permit = self.asking.acquire().await;
        let Some(body) = self.ask(text, may_have_ended).await? else {
            self.cache.refuse(key);
            return Known::Refused.into();
        };
        let odd = || Error::Odd {
            url: self.options.login.root(),
            what: "a token without a user or an end".into(),
        };
        let context = Arc::new(token::context(&body).ok_or_else(odd)?);
        let left = token::time_left(&body).ok_or_else(odd)?;
        let left = if may_have_ended { self.options.cache_time } else { left };
        self.cache.put(key, Arc::clone(&context), left);
        Ok(context)
    }

    /// What Keystone says of a token; nothing when it does not answer for it.
    async fn ask(
        &self,
        text: &str,
        may_have_ended: bool,
    ) -> Result<Option<serde_json::Value>, Error> {
        let ended = if may_have_ended { "&allow_expired=1" } else { "" };
        let url = format!("{}/auth/tokens?nocatalog=1{ended}", self.options.login.root());
        let Ok(mut subject) = HeaderValue::try_from(text) else { return Ok(None) };
        subject.set_sensitive(true);
        let mut held = self.session.token().await?;
        let mut renewed = false;
        loop {
            let headers = [(X_AUTH_TOKEN, held.text.clone()), (X_SUBJECT_TOKEN, subject.clone())];
            let http = self.session.http();
            let retries = self.session.retries();
            let answer = http.send_again(retries, Method::GET, &url, &headers, None).await?;
            match answer.status {
                StatusCode::OK => return Ok(Some(answer.json())),
                StatusCode::NOT_FOUND => return Ok(None),
                StatusCode::UNAUTHORIZED if !renewed => {
                    held = self.session.renewed(&held).await?;
                    renewed = true;
                }
                status => {
                    let user = &self.options.login.username;
                    let what = match status {
                        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => format!(
                            "{status}: give user {user} a role that may validate tokens (service)"
                        ),
                        other => other.to_string(),
                    };
                    return Err(Error::Odd { url, what });
                }
            }
        }
    }

    fn fault(&self, refusal: Refusal) -> Fault {
        match refusal {
            Refusal::Unauthorized(why) => {
                let fault = Fault::unauthorized(
                    "The request you have made requires authentication.",
                )
                .with_internal(why);
                match &self.challenge {
                    Some(challenge) => {
                        fault.with_header(header::WWW_AUTHENTICATE, challenge.clone())
                    }
                    None => fault,
                }
            }
            Refusal::Away(error) => Fault::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "The Keystone service is temporarily unavailable: your token cannot be checked now. \
                 Try again.",
            )
            .with_internal(error),
        }
    }
}

impl From<Known> for Result<Arc<Context>, Refusal> {
    fn from(known: Known) -> Self {
        match known {
            Known::Good(context) => Ok(context),
            Known::Refused => Err(Refusal::Unauthorized("Keystone does not know the token")),
        }
    }
}

/// Those who wait for the answer to the same question; the last to leave clears up.
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
        .ok_or(Refusal::Unauthorized("there is no token"))
}
