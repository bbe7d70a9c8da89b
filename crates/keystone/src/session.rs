//! A user's token: obtained by password, renewed one minute before it expires.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::{Error, Http, token};

const X_SUBJECT_TOKEN: HeaderName = HeaderName::from_static("x-subject-token");
/// A token that expires within this time is renewed.
const SPARE: Duration = Duration::from_secs(60);
/// The pause after a failed login: without it, callers would queue up behind each other's timeouts
/// while Keystone is unreachable.
const PAUSE: Duration = Duration::from_secs(1);

/// The credentials of a login.
#[derive(Clone)]
pub struct Login {
    /// Keystone's URL, with or without `/v3`.
    pub auth_url: String,
    /// User.
    pub username: String,
    /// Password.
    pub password: String,
    /// The user's domain name.
    pub user_domain_name: String,
    /// The project name.
    pub project_name: String,
    /// The project's domain name.
    pub project_domain_name: String,
}

impl std::fmt::Debug for Login {
    /// Omits the password.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Login({} in {} at {})", self.username, self.project_name, self.auth_url)
    }
}

impl Login {
    /// Keystone's URL with `/v3`.
    pub fn root(&self) -> String {
        versioned(&self.auth_url)
    }
}

/// Identifiers that take precedence over the names in [`Login`].
#[derive(Debug, Clone, Default)]
pub struct Ids {
    /// The user's.
    pub user: Option<String>,
    /// The user's domain.
    pub user_domain: Option<String>,
    /// The project's.
    pub project: Option<String>,
    /// The project's domain.
    pub project_domain: Option<String>,
}

/// The ways to log in, named after keystoneauth's plugins.
#[derive(Clone)]
pub enum Credentials {
    /// `password`, `v3password`.
    Password(Login, Ids),
    /// `v3applicationcredential`: the credential determines the user and the project.
    ApplicationCredential {
        /// Keystone's URL, with or without `/v3`.
        auth_url: String,
        /// The credential.
        credential: CredentialName,
        /// Its secret.
        secret: String,
    },
    /// `token`, `v3token`: another token of the same user. It cannot outlive that token.
    Token {
        /// Keystone's URL, with or without `/v3`.
        auth_url: String,
        /// The token.
        token: String,
        /// The project.
        project: Named,
    },
}

/// The name of an application credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialName {
    /// Its id.
    Id(String),
    /// Its name, which is unique among those of its user.
    OfUser {
        /// The name.
        name: String,
        /// The user.
        user: Named,
    },
}

/// A user or a project, by id or by name and domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// The id.
    Id(String),
    /// The name.
    Name {
        /// The name.
        name: String,
        /// The domain's id, which takes precedence over its name.
        domain_id: Option<String>,
        /// The domain's name.
        domain_name: String,
    },
}

impl Named {
    /// The form in Keystone's requests.
    fn body(&self) -> Value {
        match self {
            Self::Id(id) => json!({"id": id}),
            Self::Name { name, domain_id: Some(id), .. } => {
                json!({"name": name, "domain": {"id": id}})
            }
            Self::Name { name, domain_id: None, domain_name } => {
                json!({"name": name, "domain": {"name": domain_name}})
            }
        }
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Id(id) => id,
            Self::Name { name, .. } => name,
        }
    }
}

impl From<Login> for Credentials {
    fn from(login: Login) -> Self {
        Self::Password(login, Ids::default())
    }
}

impl std::fmt::Debug for Credentials {
    /// Omits secrets.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Credentials({} at {})", self.who(), self.auth_url())
    }
}

impl Credentials {
    /// Keystone's URL as configured.
    pub fn auth_url(&self) -> &str {
        match self {
            Self::Password(login, _) => &login.auth_url,
            Self::ApplicationCredential { auth_url, .. } | Self::Token { auth_url, .. } => auth_url,
        }
    }

    /// Keystone's URL with `/v3`.
    pub fn root(&self) -> String {
        versioned(self.auth_url())
    }

    /// Names the user without a secret, for the log.
    pub fn who(&self) -> String {
        match self {
            Self::Password(login, Ids { user: Some(id), .. }) if login.username.is_empty() => {
                format!("user {id}")
            }
            Self::Password(login, _) => format!("user {}", login.username),
            Self::ApplicationCredential { credential: CredentialName::Id(id), .. } => {
                format!("application credential {id}")
            }
            Self::ApplicationCredential {
                credential: CredentialName::OfUser { name, user },
                ..
            } => format!("application credential {name} of user {}", user.as_str()),
            Self::Token { .. } => "the configured token".to_owned(),
        }
    }

    fn body(&self) -> Value {
        match self {
            Self::Password(login, ids) => password_body(login, ids),
            Self::ApplicationCredential { credential, secret, .. } => {
                let credential = match credential {
                    CredentialName::Id(id) => json!({"id": id, "secret": secret}),
                    CredentialName::OfUser { name, user } => {
                        json!({"name": name, "secret": secret, "user": user.body()})
                    }
                };
                json!({"auth": {"identity": {
                    "methods": ["application_credential"],
                    "application_credential": credential,
                }}})
            }
            Self::Token { token, project, .. } => json!({"auth": {
                "identity": {"methods": ["token"], "token": {"id": token}},
                "scope": {"project": project.body()},
            }}),
        }
    }
}

fn versioned(url: &str) -> String {
    let url = url.trim_end_matches('/');
    if url.ends_with("/v3") { url.to_owned() } else { format!("{url}/v3") }
}

fn password_body(login: &Login, ids: &Ids) -> Value {
    let domain = |id: &Option<String>, name: &str| match id {
        Some(id) => json!({"id": id}),
        None => json!({"name": name}),
    };
    let user = match &ids.user {
        Some(id) => json!({"id": id, "password": login.password}),
        None => json!({
            "name": login.username,
            "domain": domain(&ids.user_domain, &login.user_domain_name),
            "password": login.password,
        }),
    };
    let project = match &ids.project {
        Some(id) => json!({"id": id}),
        None => json!({
            "name": login.project_name,
            "domain": domain(&ids.project_domain, &login.project_domain_name),
        }),
    };
    json!({"auth": {
        "identity": {"methods": ["password"], "password": {"user": user}},
        "scope": {"project": project},
    }})
}

/// The token of a session.
pub struct SessionToken {
    /// The value of `X-Auth-Token`.
    pub text: HeaderValue,
    /// The service catalog.
    pub catalog: Value,
    /// The id of the project of the login.
    pub project: Option<String>,
    until: Instant,
}

/// A login that is renewed on demand.
pub struct Session {
    http: Http,
    credentials: Credentials,
    retries: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: Option<Arc<SessionToken>>,
    failed: Option<(Instant, String)>,
}

impl Session {
    /// A session; it logs in on first use.
    pub fn new(http: Http, credentials: impl Into<Credentials>) -> Self {
        let credentials = credentials.into();
        Self { http, credentials, retries: 0, state: Mutex::default() }
    }

    /// Sets how often a request without an answer is retried.
    #[must_use]
    pub fn retrying(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// The number of retries.
    pub(crate) fn retries(&self) -> u32 {
        self.retries
    }

    /// The session's HTTP client.
    pub fn http(&self) -> &Http {
        &self.http
    }

    /// The session's credentials.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// A valid token.
    ///
    /// # Errors
    /// [`Error::Login`] if the login is refused; others if Keystone is unreachable.
    pub async fn token(&self) -> Result<Arc<SessionToken>, Error> {
        let mut state = self.state.lock().await;
        if let Some(held) = state.held.as_ref().filter(|held| held.until > Instant::now()) {
            return Ok(Arc::clone(held));
        }
        self.fill(&mut state).await
    }

    /// A token other than `old`, which Keystone no longer accepts.
    ///
    /// # Errors
    /// As [`Session::token`].
    pub async fn renewed(&self, old: &Arc<SessionToken>) -> Result<Arc<SessionToken>, Error> {
        let mut state = self.state.lock().await;
        match state.held.as_ref().filter(|held| !Arc::ptr_eq(held, old)) {
            Some(held) => Ok(Arc::clone(held)),
            None => self.fill(&mut state).await,
        }
    }

    async fn fill(&self, state: &mut State) -> Result<Arc<SessionToken>, Error> {
        if let Some((at, cause)) = &state.failed
            && at.elapsed() < PAUSE
        {
            return Err(Error::Unreachable {
                url: self.credentials.root(),
                connected: false,
                cause: cause.clone(),
            });
        }
        match self.log_in().await {
            Ok(held) => {
                let held = Arc::new(held);
                state.held = Some(Arc::clone(&held));
                state.failed = None;
                Ok(held)
            }
            Err(error) => {
                state.failed = Some((Instant::now(), error.to_string()));
                Err(error)
            }
        }
    }

    async fn log_in(&self) -> Result<SessionToken, Error> {
        let url = format!("{}/auth/tokens", self.credentials.root());
        let body = Bytes::from(self.credentials.body().to_string());
        let answer =
            self.http.send_with_retries(self.retries, Method::POST, &url, &[], Some(body)).await?;
        let unexpected = |what: String| Error::Unexpected { url: url.clone(), what };
        if matches!(answer.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            let why = answer.json()["error"]["message"].as_str().map(str::to_owned);
            return Err(Error::Login {
                url: url.clone(),
                user: self.credentials.who(),
                why: why.unwrap_or_else(|| answer.status.to_string()),
            });
        }
        if answer.status != StatusCode::CREATED {
            return Err(unexpected(format!("{} to a login", answer.status)));
        }
        let mut text = answer
            .headers
            .get(X_SUBJECT_TOKEN)
            .cloned()
            .ok_or_else(|| unexpected("a login without a token".into()))?;
        text.set_sensitive(true);
        let mut body = answer.json();
        let left = token::time_left(&body)
            .ok_or_else(|| unexpected("a login without an expiry".into()))?;
        Ok(SessionToken {
            text,
            project: body["token"]["project"]["id"].as_str().map(str::to_owned),
            catalog: body["token"]["catalog"].take(),
            until: Instant::now() + left.saturating_sub(SPARE),
        })
    }
}
