//! A client of the compute API. It renews an expired token once, and returns all other errors to the caller.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};
use kilonova_keystone::{Error, Http, Session};
use serde_json::Value;

use super::CloudArgs;
use super::environment::{self, Credentials};
use crate::failure::Failure;

const X_AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
const VERSION: HeaderName = HeaderName::from_static("openstack-api-version");
/// The microversion of all requests.
const MICROVERSION: HeaderValue = HeaderValue::from_static("compute 2.90");
const TIMEOUT: Duration = Duration::from_secs(30);
const LARGEST: usize = 64 * 1024 * 1024;

enum Auth {
    Token(HeaderValue),
    Session(Box<Session>),
}

/// The compute API of a cloud.
pub struct Compute {
    http: Http,
    url: String,
    auth: Auth,
}

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub enum ComputeError {
    /// No usable answer; a retry may succeed.
    #[error("{0}")]
    Unreachable(String),
    /// The URL is invalid, so nothing was sent.
    #[error("{0}")]
    Invalid(String),
    /// The request was refused.
    #[error("{message}")]
    Refused {
        /// The status.
        status: StatusCode,
        /// The message of the fault.
        message: String,
    },
}

impl ComputeError {
    /// The failure of a command.
    pub fn fatal(self) -> Failure {
        match self {
            Self::Unreachable(why) => Failure::Failed(why),
            Self::Invalid(message) | Self::Refused { message, .. } => Failure::Refused(message),
        }
    }
}

impl Compute {
    /// Logs in and finds the compute API.
    ///
    /// # Errors
    /// If there are no credentials or the login fails.
    pub async fn open(arguments: &CloudArgs) -> Result<Self, Failure> {
        let set = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let found = environment::find(arguments, &set)?;
        let http = Http::new(found.cafile.as_deref(), TIMEOUT, LARGEST);
        let http = match (http, &found.cafile) {
            (Ok(http), _) => http,
            // Without TLS no authority is needed.
            (Err(_), None) => Http::plain(TIMEOUT, LARGEST).map_err(refused)?,
            (Err(error), Some(_)) => return Err(refused(error)),
        };
        let (auth, catalog) = match found.credentials {
            Credentials::Token(token) => {
                let mut token = HeaderValue::try_from(token).map_err(|_| {
                    Failure::Refused("the token contains invalid characters".into())
                })?;
                token.set_sensitive(true);
                (Auth::Token(token), Value::Null)
            }
            Credentials::Login(login) => {
                let session = Session::new(http.clone(), login);
                let catalog = session.token().await.map_err(refused)?.catalog.clone();
                (Auth::Session(Box::new(session)), catalog)
            }
        };
        let region = found.region.as_deref();
        let url =
            arguments.compute_url.clone().or_else(|| endpoint(&catalog, &found.interface, region));
        let url = url.ok_or_else(|| {
            Failure::Refused(format!(
                "the catalog has no {} compute endpoint{}; set --compute-url",
                found.interface,
                region.map(|name| format!(" in region {name}")).unwrap_or_default()
            ))
        })?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned(), auth })
    }

    /// Sends a GET to a path below `/v2.1`.
    ///
    /// # Errors
    /// [`ComputeError`].
    pub async fn get(&self, path: &str) -> Result<Value, ComputeError> {
        self.ask(Method::GET, path, None).await
    }

    /// Sends a request to a path below `/v2.1`.
    ///
    /// # Errors
    /// [`ComputeError`].
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ComputeError> {
        let url = format!("{}{path}", self.url);
        let unreachable = |e: Error| match e {
            Error::Setup(why) => ComputeError::Invalid(why),
            error => ComputeError::Unreachable(error.to_string()),
        };
        let mut renewed = false;
        loop {
            let (token, held) = match &self.auth {
                Auth::Token(token) => (token.clone(), None),
                Auth::Session(session) => {
                    let held = session.token().await.map_err(unreachable)?;
                    (held.text.clone(), Some((session, held)))
                }
            };
            let headers = [(X_AUTH_TOKEN, token), (VERSION, MICROVERSION)];
            let bytes = body.map(|body| body.to_string().into());
            let answer =
                self.http.send(method.clone(), &url, &headers, bytes).await.map_err(unreachable)?;
            if answer.status.is_success() {
                return Ok(answer.json());
            }
            if let (StatusCode::UNAUTHORIZED, Some((session, held)), false) =
                (answer.status, held, renewed)
            {
                session.renewed(&held).await.map_err(unreachable)?;
                renewed = true;
                continue;
            }
            if answer.status.is_server_error() {
                return Err(ComputeError::Unreachable(format!("{url} answered {}", answer.status)));
            }
            return Err(ComputeError::Refused {
                status: answer.status,
                message: fault_message(&url, answer.status, &answer.json()),
            });
        }
    }
}

fn refused(error: Error) -> Failure {
    Failure::Refused(error.to_string())
}

/// The message of a fault.
fn fault_message(url: &str, status: StatusCode, body: &Value) -> String {
    let fault = body.as_object().and_then(|keys| keys.values().next());
    let message = fault.and_then(|fault| fault["message"].as_str());
    let text = message.map_or_else(|| format!("{url} answered {status}"), str::to_owned);
    match status {
        StatusCode::FORBIDDEN => format!("{text} This requires administrator credentials."),
        StatusCode::NOT_FOUND if message.is_none() => {
            format!("{text}: not a Kilonova, or an older version")
        }
        _ => text,
    }
}

fn endpoint(catalog: &Value, interface: &str, region: Option<&str>) -> Option<String> {
    let services = catalog.as_array()?.iter().filter(|service| service["type"] == "compute");
    let mut endpoints =
        services.flat_map(|service| service["endpoints"].as_array().into_iter().flatten());
    let fits = |endpoint: &&Value| {
        endpoint["interface"] == interface && region.is_none_or(|name| endpoint["region"] == name)
    };
    endpoints.find(fits)?["url"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_endpoint_matches_region_and_interface() {
        let catalog = json!([
            {"type": "image", "endpoints": [{"interface": "public", "region": "R", "url": "i"}]},
            {"type": "compute", "endpoints": [
                {"interface": "internal", "region": "R", "url": "in"},
                {"interface": "public", "region": "S", "url": "other"},
                {"interface": "public", "region": "R", "url": "here"},
            ]},
        ]);
        assert_eq!(endpoint(&catalog, "public", Some("R")).as_deref(), Some("here"));
        assert_eq!(endpoint(&catalog, "public", None).as_deref(), Some("other"));
        assert_eq!(endpoint(&catalog, "admin", None), None);
    }

    #[test]
    fn a_refusal_has_the_clouds_message() {
        let body = json!({"conflictingRequest": {"code": 409, "message": "No."}});
        assert_eq!(fault_message("u", StatusCode::CONFLICT, &body), "No.");
        let forbidden = json!({"forbidden": {"message": "No."}});
        let text = fault_message("u", StatusCode::FORBIDDEN, &forbidden);
        assert!(text.contains("No. This requires"), "{text}");
        assert!(fault_message("u", StatusCode::NOT_FOUND, &Value::Null).contains("not a Kilonova"));
    }
}
