//! The token that Nova wants to see: none, a fixed one, or one from a Keystone, kept until Nova no
//! longer takes it.

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::json;
use tokio::sync::Mutex;

use super::Trouble;
use super::http::{call, shown};

/// How we say who we are.
#[derive(Clone)]
pub enum Credentials {
    /// Not at all.
    None,
    /// By a token that the operator gave.
    Token(String),
    /// By a user of a Keystone.
    Password {
        /// `http://controller:5000/v3`.
        auth_url: String,
        /// User name.
        username: String,
        /// Password.
        password: String,
        /// Project name.
        project_name: String,
        /// Domain of the user.
        user_domain_name: String,
        /// Domain of the project.
        project_domain_name: String,
    },
}

pub(super) struct Tokens {
    credentials: Credentials,
    kept: Mutex<Option<HeaderValue>>,
}

fn value(token: &str) -> Result<HeaderValue, Trouble> {
    let mut value = HeaderValue::from_str(token)
        .map_err(|_| Trouble::Never("the token for Nova is no header value".into()))?;
    value.set_sensitive(true);
    Ok(value)
}

impl Tokens {
    pub fn new(credentials: Credentials) -> Self {
        Self { credentials, kept: Mutex::new(None) }
    }

    /// The token; a new one if the kept one was refused.
    pub async fn get(&self, fresh: bool) -> Result<Option<HeaderValue>, Trouble> {
        match &self.credentials {
            Credentials::None => Ok(None),
            Credentials::Token(token) => value(token).map(Some),
            Credentials::Password { .. } => {
                let mut kept = self.kept.lock().await;
                if fresh || kept.is_none() {
                    *kept = None;
                    *kept = Some(self.issue().await?);
                }
                Ok(kept.clone())
            }
        }
    }

    async fn issue(&self) -> Result<HeaderValue, Trouble> {
        let Credentials::Password {
            auth_url,
            username,
            password,
            project_name,
            user_domain_name,
            project_domain_name,
        } = &self.credentials
        else {
            return Err(Trouble::Never("there is no password to get a token with".into()));
        };
        let body = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": {
                "name": username, "password": password, "domain": {"name": user_domain_name},
            }}},
            "scope": {"project": {
                "name": project_name, "domain": {"name": project_domain_name},
            }},
        }});
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let root = auth_url.trim_end_matches('/');
        let version = if root.ends_with("/v3") { "" } else { "/v3" };
        let url = format!("{root}{version}/auth/tokens");
        let reply = call(Method::POST, &url, headers, body.to_string()).await?;
        if reply.status != StatusCode::CREATED {
            return Err(Trouble::Later(format!(
                "{url} gives user {username} no token: {} {}",
                reply.status,
                shown(&reply.body)
            )));
        }
        let token = reply.headers.get("x-subject-token").and_then(|token| token.to_str().ok());
        value(token.ok_or_else(|| Trouble::Later(format!("{url} answered without a token")))?)
    }
}
